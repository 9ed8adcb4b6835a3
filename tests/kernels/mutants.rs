//! Goal: the mutants are caught on the kernels as on the CPU subject. Method: every claim of a property that
//! asks a subject, over the cases of the matrix, each until it is caught. `padproof run --mutants --subject
//! cuda-host` makes the whole matrix, in minutes.

use super::runs;
use padproof::mutant::{self, Mutant};
use padproof::property::{ALL, Needs, Property, Trial, Verdict};
use padproof::run::matrix_cases;
use padproof::subject::CudaHost;
use rayon::prelude::*;

/// Faults of layouts, and of experts, that the kernels do not take (`src/subject/cuda/limits.rs`).
const OF_OTHER_LAYERS: [&str; 6] = [
    "identity-on-every-rank",
    "identity-dropped",
    "identity-as-an-expert",
    "weights-not-shuffled",
    "weight-tile-transposed",
    "rows-shuffled-in-sixteens",
];

fn claims() -> Vec<(&'static Mutant, &'static Property)> {
    let asks = |p: &&Property| matches!(p.needs, Needs::Subject | Needs::Paths);
    let of = |m: &'static Mutant| {
        let claimed = |p: &&'static Property| m.caught_by.contains(&p.name);
        ALL.iter().filter(asks).filter(claimed).map(move |p| (m, p))
    };
    mutant::ALL.iter().flat_map(of).collect()
}

#[test]
fn every_mutant_is_caught_on_the_kernels_by_the_properties_that_claim_it() {
    if !runs() {
        return;
    }
    let cases = matrix_cases(0x5eed);
    let claims = claims();
    let faults: Vec<String> = claims
        .par_iter()
        .filter(|(mutant, _)| !OF_OTHER_LAYERS.contains(&mutant.name))
        .filter_map(|(mutant, property)| {
            let mut subject = CudaHost::new();
            let caught = |case| {
                let mut trial = Trial::mutated(&mut subject, mutant);
                let verdict = (property.check)(case, &mut trial);
                trial.planted && matches!(verdict, Verdict::Fail(_))
            };
            let caught = cases.iter().any(caught);
            (!caught).then(|| format!("{} is not caught by {}", mutant.name, property.name))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(claims.len() >= 40, "{} claims", claims.len());
}

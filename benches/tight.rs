//! How tight the bound of f32 sums in a promised order is: the CPU subject's errors over their bounds, over random
//! cases of the profile `full`. Prints the medians of elements and of each case's largest, and fails where an
//! error lies outside. `cargo bench --bench tight -- CASES`, 100,000 unless said.

#![expect(clippy::print_stdout, reason = "a bench reports its figures")]

use padproof::case::Case;
use padproof::fill::fill;
use padproof::r#gen::{Domain, draw};
use padproof::layout::pack_layer;
use padproof::plan::{Fit, plan};
use padproof::reference::reference_for;
use padproof::subject::{Cpu, Subject};
use padproof::terms::{ActQuant, Fill, WeightFormat};
use rayon::prelude::*;

// As the command does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SEED: u64 = 0x71e47;
/// Cases drawn at a time: memory holds the errors, not the cases.
const ROUND: u64 = 1 << 16;
/// Most elements of a case that are kept beside its largest.
const ELEMENTS: usize = 127;

/// Whether ranks share the sum of a token, the largest error over its bound, and a part of the others; nothing of
/// cases with other sums, or of which every operation is exact.
fn errors(index: u64) -> Option<(bool, f64, Vec<f64>)> {
    let mut case: Case = draw(&Domain::FULL, SEED, index);
    case.fill = Fill::Wild;
    let quantised = case.qx != ActQuant::None || case.qh != ActQuant::None;
    if case.w != WeightFormat::F32 || case.mid_bf16 || quantised {
        return None;
    }
    let mut subject = Cpu::new();
    let plan = plan(&case).ok().filter(|plan| plan.fit <= Fit::Unknown)?;
    subject.supports(&plan).ok()?;
    let logical = fill(&case).ok()?;
    let arithmetic = subject.arithmetic(&case);
    let wanted = reference_for(&case, &logical, arithmetic).expect("a drawn case has a reference");
    if wanted.exact {
        return None;
    }
    let packed = pack_layer(&plan, &logical).expect("a plan that was made can be packed");
    let actual = subject.run(&plan, &packed).expect("plan and tensors match");
    let hidden = case.h as usize;
    let shares: Vec<f64> = (0..wanted.values.len())
        .filter(|at| !wanted.ambiguous[at / hidden] && wanted.bound[*at] > 0.0)
        .map(|at| (f64::from(actual.values[at]) - wanted.values[at]).abs() / wanted.bound[at])
        .collect();
    let largest = shares.iter().copied().reduce(f64::max)?;
    assert!(largest <= 1.0, "{case}: {largest} times its bound");
    let step = shares.len().div_ceil(ELEMENTS);
    let part = shares.into_iter().step_by(step).collect();
    Some((case.tp > case.ep, largest, part))
}

fn median(mut shares: Vec<f64>) -> f64 {
    shares.sort_by(f64::total_cmp);
    shares[shares.len() / 2]
}

fn main() {
    let said = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let (cases, mut found) = (said.unwrap_or(100_000), Vec::new());
    for round in 0.. {
        if found.len() >= cases {
            break;
        }
        let indices = round * ROUND..(round + 1) * ROUND;
        found.extend(
            indices
                .into_par_iter()
                .filter_map(errors)
                .collect::<Vec<_>>(),
        );
    }
    let part = |name: &str, wanted: fn(bool) -> bool| {
        let of: Vec<_> = found
            .iter()
            .filter(|(shared, ..)| wanted(*shared))
            .collect();
        if of.is_empty() {
            return;
        }
        let elements = median(of.iter().flat_map(|(_, _, part)| part.clone()).collect());
        let largest = median(of.iter().map(|(_, largest, _)| *largest).collect());
        println!(
            "{name:32} {:7} cases: error over bound, median of elements {elements:.2e}, of a case's largest {largest:.2e}",
            of.len()
        );
    };
    part("every case", |_| true);
    part("whole rows of w2 on a rank", |shared| !shared);
    part("sums that ranks share", |shared| shared);
}

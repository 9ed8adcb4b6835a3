//! Goal: no shipped rule plans a layer as padded on which a property of padding fails. Method: each
//! rule with each of its formats, gated and not, at the least sizes that its granules pad.

use padproof::audit::{Fault, audit};
use padproof::case::Case;
use padproof::fill::fill;
use padproof::layout::{Pads, map, pack_layer, set_pads};
use padproof::plan::{Along, Fit, Plan, Role, plan};
use padproof::property::{Trial, Verdict, find, invariants, is_padded};
use padproof::rule::{Rule, Rules};
use padproof::subject::Cpu;
use padproof::terms::WeightFormat;
use rayon::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What padding is asked; `rule-agrees` is asked of each plan by itself.
const ASKED: [&str; 5] = [
    "pad-is-inert",
    "poison-isolated",
    "pad-identity",
    "pack-round-trip",
    "reload-idempotent",
];

/// Widths over two ranks that end inside a scale group, and such as fill groups of 32.
const WIDTHS: [&[u64]; 2] = [&[66, 130, 200, 288, 416, 832], &[64, 192, 320, 640, 896]];
const HIDDEN: [u64; 4] = [64, 128, 256, 512];
const LAYERS: [&str; 3] = ["act=swiglu", "act=swigluoai,bias=both", "act=relu2"];

/// The smallest padded cases that a rule runs in a format, one of each list of widths.
fn cases(rule: &Rule, weight: WeightFormat, layer: &str) -> Vec<(Case, Plan)> {
    let least = |widths: &&[u64]| {
        let sizes = HIDDEN
            .iter()
            .flat_map(|h| widths.iter().map(move |i| (h, i)));
        sizes
            .map(|(h, i)| {
                let line = format!(
                    "t=2,e=2,k=1,h={h},i={i},tp=2,{layer},w={},rule={},fill=wild",
                    weight.name(),
                    rule.id
                );
                let case: Case = line.parse().expect("a case line");
                let plan = plan(&case).expect("small sizes can be planned");
                let faults = invariants(rule, &plan);
                assert!(faults.is_empty(), "{line}: {faults:?}");
                (case, plan)
            })
            .find(|(_, plan)| plan.fit <= Fit::Unknown && is_padded(plan))
    };
    WIDTHS.iter().filter_map(least).collect()
}

/// What bytes and outputs depend on, whatever the rule is called.
fn signature(plan: &Plan) -> String {
    let bare = Plan {
        rule: String::new(),
        fit: Fit::Padded,
        grade: padproof::rule::Grade::Source,
        kernel: false,
        arch: Vec::new(),
        unread: Vec::new(),
        w2_bias: None,
        violations: Vec::new(),
        ..plan.clone()
    };
    format!("{bare:?}")
}

/// INT4 code 0 is -8, and Marlin's scales of padding are 0: right bytes are clean, and those under other
/// scales are not (it was the other way round).
#[test]
fn pads_that_rest_on_scales_are_clean_only_under_scales_of_zero() {
    let line = "t=2,e=2,k=1,h=128,i=192,tp=2,act=swiglu,w=int4-g32,rule=vllm.marlin.int4,fill=wild";
    let case: Case = line.parse().expect("a case line");
    let plan = plan(&case).expect("it can be planned");
    assert_eq!(plan.fit, Fit::Padded);
    let logical = fill(&case).expect("it is small");
    let mut packed = pack_layer(&plan, &logical).expect("it has a layout");
    let found = audit(&plan, &logical, &packed).expect("sizes agree");
    assert!(found.clean(), "{:?}", found.first);
    let map = map(&plan, Role::W13Scale, 0).expect("it has scales");
    let scales = packed.ranks[0]
        .get_mut(Role::W13Scale)
        .expect("they are packed");
    set_pads(&map, scales, Pads::Logical, map.dtype.one_code());
    let found = audit(&plan, &logical, &packed).expect("sizes agree");
    let faults: Vec<Fault> = found.regions.iter().map(|region| region.fault).collect();
    assert_eq!(faults, [Fault::ScalePad]);
}

#[test]
fn no_property_fails_where_a_shipped_rule_says_padded() {
    let mut seen = HashSet::new();
    let mut asked = Vec::new();
    let (mut combinations, mut one_sided) = (0, 0);
    for rule in Rules::builtin().iter().filter(|rule| !rule.dispatch) {
        for weight in &rule.formats {
            for layer in LAYERS {
                combinations += 1;
                for (case, plan) in cases(rule, *weight, layer) {
                    one_sided += u64::from(!plan.pads_inert(Role::W2, Along::Width));
                    if seen.insert(signature(&plan)) {
                        asked.push(case);
                    }
                }
            }
        }
    }
    let passed = AtomicUsize::new(0);
    let fails: Vec<String> = asked
        .par_iter()
        .flat_map_iter(|case| {
            let mut cpu = Cpu::default();
            let mut trial = Trial::new(&mut cpu);
            let fails = ASKED.iter().filter_map(|name| {
                let property = find(name).expect("it is listed");
                match (property.check)(case, &mut trial) {
                    Verdict::Fail(f) => Some(format!("{}: {} ({})", f.repro(), f.place, f.actual)),
                    Verdict::Broken(e) => Some(format!("{name} {case}: {e}")),
                    Verdict::Pass(_) => {
                        passed.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                    Verdict::Skip(_) | Verdict::Vacuous(_) => None,
                }
            });
            fails.collect::<Vec<_>>()
        })
        .collect();
    assert!(
        fails.is_empty(),
        "{} fail\n{}",
        fails.len(),
        fails.join("\n")
    );
    // Most prove something, and rules whose pads are one-sided are among them.
    let passed = passed.into_inner();
    assert!(passed * 2 > asked.len() * ASKED.len(), "{passed} passed");
    assert!(
        combinations > 500 && asked.len() > 100 && one_sided > 0,
        "{combinations} {}",
        asked.len()
    );
}

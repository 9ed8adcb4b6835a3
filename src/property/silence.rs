//! The invariants of facts/upstream-padding.md 3.1 about what padding holds and leaves alone: V-3 to V-5,
//! V-10 to V-13 and V-19, as far as integers show them.
//!
//! It must not ask `plan` what it thinks of its own padding. Layer 8.

use crate::plan::{Plan, Role, ScalePlan};
use crate::rule::{BiasShare, PadValue, Rule};
use crate::terms::Bias;

/// What a plan that says it runs breaks of them; `wrong` says that it is known not to be right.
pub(super) fn silence(
    rule: &Rule,
    plan: &Plan,
    wrong: bool,
    claim: &mut dyn FnMut(bool, &dyn Fn() -> String),
) {
    // V-3: the kernel's order of rows, at the padded length of a half.
    claim(
        plan.order == rule.order && plan.place == rule.place,
        &|| {
            format!(
                "rows are {} {}, and the rule says {} {}",
                plan.order, plan.place, rule.order, rule.place
            )
        },
    );
    let width = plan.ranks.iter().any(|rank| rank.len < plan.width_padded);
    let hidden = plan.dims.h < plan.hidden_padded;
    // V-4 and V-5: one side of each product with padding is exactly zero.
    let loud = plan.weight.element().decode(plan.weight_pad) != 0.0;
    let first = plan.w13_scale.map(|s| (s, s.row_block));
    claim(
        wrong || !width || !loud || first.is_some_and(|(s, block)| covers(plan, &s, block)),
        &|| {
            format!(
                "the pad code {} is not zero, nor are the scales that it meets in w13",
                plan.weight_pad
            )
        },
    );
    // V-11: what a token's or a group's scale is taken from has no dirty tail.
    let zero = |value| matches!(value, PadValue::Zero | PadValue::DecodeZero);
    claim(wrong || !hidden || zero(rule.fill.activation), &|| {
        "the input's hidden tail is not zero".to_owned()
    });
    // V-12: w13's bias ends in zeros, w2's is added once.
    let bias = plan.bias == Bias::Both;
    claim(wrong || !bias || !width || zero(rule.fill.bias), &|| {
        "the tail of w13's bias is not zero".to_owned()
    });
    let shards = plan.ranks.iter().filter(|r| r.len < plan.dims.i).count() > 0;
    let often = rule.w2_bias == Some(BiasShare::EveryRank);
    claim(wrong || !bias || !shards || !often, &|| {
        "the bias of w2 is added on every rank".to_owned()
    });
    whole_scales(plan, claim);
    extents(plan, claim);
}

/// Whether every pad row of w13 stands under scales of padding alone, and those are zero.
fn covers(plan: &Plan, scale: &ScalePlan, block: u64) -> bool {
    let apart = |len: u64| match block {
        0 => false,
        _ => len / block >= len.div_ceil(block),
    };
    let mut padded = plan.ranks.iter().filter(|r| r.len < plan.width_padded);
    scale.dtype.decode(scale.pad_code) == 0.0 && padded.all(|rank| apart(rank.len))
}

/// V-10 and V-13: scales of a whole tensor are not padded, those of blocks before they are stored.
fn whole_scales(plan: &Plan, claim: &mut dyn FnMut(bool, &dyn Fn() -> String)) {
    for (name, scale, halves) in [
        ("w13", plan.w13_scale, plan.dims.halves),
        ("w2", plan.w2_scale, 1),
    ] {
        let Some(s) = scale else {
            continue;
        };
        let rows = s.row_block != 0 || s.rows_padded == halves;
        let cols = s.col_block != 0 || s.cols_padded == 1;
        claim(rows && cols, &|| {
            format!(
                "{name} has {} x {} scales, though one is for a whole axis",
                s.rows_padded, s.cols_padded
            )
        });
        let (tile_rows, tile_cols) = plan.storage.of(s.dtype).tile();
        claim(
            s.rows_stored.is_multiple_of(tile_rows)
                && s.cols_stored.is_multiple_of(tile_cols)
                && s.rows_stored >= s.rows_padded
                && s.cols_stored >= s.cols_padded,
            &|| {
                format!(
                    "{name}'s scales, {} x {}, are stored as {} x {} in tiles of {tile_rows} x {tile_cols}",
                    s.rows_padded, s.cols_padded, s.rows_stored, s.cols_stored
                )
            },
        );
    }
    let globals = [(Role::W13Global, plan.dims.halves), (Role::W2Global, 1)];
    for (role, each) in globals {
        let found = plan.tensors.iter().find(|t| t.name == role.name());
        let held = plan.ranks.iter().map(|r| r.expert_len).max().unwrap_or(0);
        claim(
            found.is_none_or(|t| t.shape == [held, each, 1] && t.shape == t.logical),
            &|| format!("{} is not one for each expert and projection", role.name()),
        );
    }
}

/// V-19: what is cut off again is what was added: the logical extents are those of the fullest rank.
fn extents(plan: &Plan, claim: &mut dyn FnMut(bool, &dyn Fn() -> String)) {
    let fullest = plan.ranks.iter().map(|r| r.len).max().unwrap_or(0);
    for (role, wanted) in [
        (Role::W13, [plan.dims.halves * fullest, plan.dims.h]),
        (Role::W2, [plan.dims.h, fullest]),
    ] {
        let found = plan.tensors.iter().find(|t| t.name == role.name());
        claim(found.is_none_or(|t| t.logical[1..] == wanted), &|| {
            format!(
                "{} is said to hold other than {} x {} real elements",
                role.name(),
                wanted[0],
                wanted[1]
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::case::Case;
    use crate::case::Scheme;
    use crate::plan::{Effect, Fit, Plan, plan_under, spelled_rule};
    use crate::property::invariants;
    use crate::rule::{BiasShare, PadValue, Rule};
    use crate::terms::Order;

    /// The rule of a case, and its plan under it with every finding taken back.
    fn silenced(line: &str, change: impl Fn(&mut Rule)) -> (Rule, Plan, Plan) {
        let case: Case = line.parse().unwrap();
        let Scheme::Spelled(spec) = &case.scheme else {
            unreachable!("the lines spell their scheme")
        };
        let mut rule = spelled_rule(spec, case.w).unwrap();
        change(&mut rule);
        let told = plan_under(&case, &rule).unwrap();
        let silent = Plan {
            fit: Fit::Padded,
            violations: Vec::new(),
            ..told.clone()
        };
        (rule, told, silent)
    }

    const PADDED: &str = "t=3,e=2,k=1,h=40,i=24,tp=2,act=swiglu,bias=both,w=bf16,pad=i16.h64";

    #[test]
    fn fills_that_are_not_silent_are_told_and_seen_where_they_are_not() {
        type Change = fn(&mut Rule);
        let changes: [(&str, Change); 8] = [
            ("V-4", |r| r.fill.weight = PadValue::One),
            ("V-4, 1", |r| r.fill.weight = PadValue::ByteOne),
            ("V-11", |r| r.fill.activation = PadValue::One),
            ("V-11, memory", |r| {
                r.fill.activation = PadValue::Uninitialised
            }),
            ("V-12", |r| r.fill.bias = PadValue::One),
            ("V-12, 1", |r| r.fill.bias = PadValue::ByteOne),
            ("V-12, memory", |r| r.fill.bias = PadValue::Uninitialised),
            ("V-12, ranks", |r| r.w2_bias = Some(BiasShare::EveryRank)),
        ];
        for (name, change) in changes {
            let (rule, told, silent) = silenced(PADDED, change);
            assert_eq!(told.fit, Fit::Wrong, "{name}");
            assert!(invariants(&rule, &told).is_empty(), "{name}");
            assert!(!invariants(&rule, &silent).is_empty(), "{name}");
        }
        let (rule, told, silent) = silenced(PADDED, |_| ());
        assert_eq!(told.fit, Fit::Padded);
        assert!(invariants(&rule, &silent).is_empty());
    }

    /// INT4 code 0 is -8: silent under scales of zero, or where it meets zeros (PP137), else wrong.
    #[test]
    fn int4_pads_of_code_zero_are_judged_by_the_scales_that_they_meet() {
        for (line, scale, fit, notes) in [
            // Whole groups of padding under scales of zero.
            (
                "w=int4-g32,h=64,i=64,tp=1,pad=i128",
                PadValue::Zero,
                Fit::Padded,
                0,
            ),
            (
                "w=int4-g32,h=64,i=64,tp=1,pad=i128",
                PadValue::One,
                Fit::Wrong,
                1,
            ),
            // Columns of w2 in a group, or a channel, that is real in part.
            (
                "w=int4-g32,h=64,i=48,tp=1,pad=i64",
                PadValue::Zero,
                Fit::Padded,
                1,
            ),
            (
                "w=int4-channel,h=64,i=48,tp=1,pad=i64",
                PadValue::Zero,
                Fit::Padded,
                1,
            ),
            (
                "w=int4-channel,h=64,i=48,tp=1,pad=i64",
                PadValue::One,
                Fit::Wrong,
                1,
            ),
        ] {
            let line = format!("t=3,e=2,k=1,{line}");
            let (rule, told, silent) = silenced(&line, |r| {
                r.fill.weight = PadValue::Zero;
                r.fill.scale = scale;
            });
            assert_eq!(told.fit, fit, "{line}");
            let found = told.violations.iter().filter(|v| match v.code {
                "PP120" => v.effect == Effect::Wrong,
                "PP137" => v.effect == Effect::Note,
                _ => false,
            });
            assert_eq!(found.count(), notes, "{line}");
            assert!(invariants(&rule, &told).is_empty(), "{line}");
            let seen = !invariants(&rule, &silent).is_empty();
            assert_eq!(seen, fit == Fit::Wrong, "{line}");
        }
    }

    /// V-3, V-10, V-13 and V-19, planted: nothing else in a plan shows them.
    #[test]
    fn a_plan_that_forgets_its_rule_is_seen() {
        const TILED: &str = "t=3,e=2,k=1,h=64,i=96,tp=2,w=nvfp4,order=up-gate,store=128x4,pad=i64";
        type Change = fn(&mut Plan);
        let changes: [(&str, Change); 5] = [
            ("V-3", |p| p.order = Order::GateUp),
            ("V-10", |p| p.tensors[4].shape[0] = 1),
            ("V-13", |p| p.w2_scale.as_mut().unwrap().cols_stored = 3),
            ("V-19, w13", |p| p.tensors[0].logical[1] += 1),
            ("V-19, w2", |p| p.tensors[1].logical[2] = p.width_padded),
        ];
        let (rule, _, right) = silenced(TILED, |_| ());
        assert_eq!(invariants(&rule, &right), Vec::<String>::new());
        for (name, change) in changes {
            let mut plan = right.clone();
            change(&mut plan);
            assert_eq!(invariants(&rule, &plan).len(), 1, "{name}");
        }
    }
}

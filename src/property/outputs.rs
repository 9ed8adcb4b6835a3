//! Claims about a subject's outputs.

use super::against::{against, truth};
use super::trial::{Missed, Outcome, Trial, broken, fact, is_padded, proved, settle};
use super::{Finding, Tier, Vacuous, Verdict};
use crate::case::{Case, Scheme};
use crate::compare::{Comparison, same_bits};
use crate::layout::PackedInputs;
use crate::plan::{Plan, plan_with};
use crate::reference::Reference;
use crate::subject::SkipReason;
use crate::tensor::{Logical, Output, RouterInput, Tensor};
use crate::terms::Split;

/// pad-identity: the padded, sharded, packed layer gives the reference's outputs, and the bits
/// of the same subject on the same shards unpadded.
pub(super) fn pad_identity(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    const NAME: &str = "pad-identity";
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let (plan, logical, output) = trial.attempt(case)?;
        let truth = truth(trial, case, &logical)?;
        let held = against(&truth, &output);
        let mut tier = held.tier;
        if !held.found.agree {
            let missed = Missed {
                property: NAME,
                case,
                plan: &plan,
                logical: &logical,
                truth: &truth,
            };
            return Ok(missed.verdict(trial, tier, &held.found));
        }
        if held.found.all_nan() {
            return Ok(Verdict::Vacuous(Vacuous::AllNan));
        }
        let padded = is_padded(&plan);
        let bare = trial.bare(&plan)?;
        if tier != Tier::Exact && padded && trial.keeps_order(&bare, &plan, &truth.ids) {
            let packed = trial.pack_true(&bare, &logical)?;
            let wanted = trial.run_true(&bare, &packed)?;
            trial.done(packed);
            let found = same_bits(&wanted, &output);
            if found.agree {
                tier = Tier::SameOrder;
            } else if trial.promises_bits() {
                return Ok(trial.fail(NAME, case, &plan, Tier::SameOrder, "", &found));
            } else {
                tier = Tier::OtherBits;
            }
        }
        trial.done_with(logical);
        if !padded {
            return Ok(Verdict::Vacuous(Vacuous::NothingPadded));
        }
        Ok(held.proved(&output, tier))
    };
    settle(run(trial))
}

/// tp-sum: the ranks' partial outputs add up to the layer on one rank.
pub(super) fn tp_sum(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        if case.tp == 1 {
            return Ok(Verdict::Vacuous(Vacuous::OneRank));
        }
        let (plan, logical, output) = trial.attempt(case)?;
        let truth = truth(trial, case, &logical)?;
        let held = against(&truth, &output);
        if !held.found.agree {
            let missed = Missed {
                property: "tp-sum",
                case,
                plan: &plan,
                logical: &logical,
                truth: &truth,
            };
            return Ok(missed.verdict(trial, held.tier, &held.found));
        }
        trial.done_with(logical);
        Ok(held.proved(&output, held.tier))
    };
    settle(run(trial))
}

/// tp-pad-commute: padding before the split and after it gives the same outputs.
pub(super) fn tp_pad_commute(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        if case.tp == 1 {
            return Ok(Verdict::Vacuous(Vacuous::OneRank));
        }
        let Scheme::Spelled(spec) = &case.scheme else {
            return Err(Verdict::Skip(SkipReason::Unsupported(
                "a rule fixes the order of padding and splitting".to_owned(),
            )));
        };
        let with = |split| Case {
            scheme: Scheme::Spelled(crate::case::PadSpec { split, ..*spec }),
            ..case.clone()
        };
        let (before, after) = (with(Split::Prepad), with(Split::CeilBlock));
        let logical = trial.fill(case)?;
        let first = trial.plan(&before)?;
        let mut packed = trial.pack(&first, &logical)?;
        let actual = trial.run(&first, &mut packed)?;
        trial.done(packed);
        let second = trial.plan(&after)?;
        let packed = trial.pack_true(&second, &logical)?;
        let wanted = trial.run_true(&second, &packed)?;
        trial.done(packed);
        let truth = truth(trial, case, &logical)?;
        // Both orders are held against the reference: equal to it, or within its bound.
        let after = against(&truth, &wanted);
        let held = against(&truth, &actual);
        for (plan, side) in [(&first, &held), (&second, &after)] {
            if !side.found.agree {
                let why = Reference::DERIVATION;
                return Ok(trial.fail("tp-pad-commute", case, plan, side.tier, why, &side.found));
            }
        }
        trial.done_with(logical);
        Ok(held.proved(&actual, held.tier))
    };
    settle(run(trial))
}

/// hidden-pad: padding the hidden axis changes no bit of the output.
pub(super) fn hidden_pad(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let plan = trial.plan(case)?;
        if plan.hidden_padded == plan.dims.h {
            return Ok(Verdict::Vacuous(Vacuous::NothingPadded));
        }
        let logical = trial.fill(case)?;
        let mut packed = trial.pack(&plan, &logical)?;
        let output = trial.run(&plan, &mut packed)?;
        trial.done(packed);
        let bare = trial.bare(&plan)?;
        if bare.hidden_padded == plan.hidden_padded {
            return Ok(Verdict::Vacuous(Vacuous::NothingPadded));
        }
        // A promise needs no routing.
        let reveals = trial.subject.reveals();
        let ids = if reveals {
            truth(trial, case, &logical)?.ids
        } else {
            Vec::new()
        };
        let kept = trial.keeps_order(&bare, &plan, &ids);
        if kept {
            let packed = trial.pack_true(&bare, &logical)?;
            let wanted = trial.run_true(&bare, &packed)?;
            trial.done(packed);
            let found = same_bits(&wanted, &output);
            if found.agree {
                trial.done_with(logical);
                return Ok(proved(&output, Tier::SameOrder));
            }
            if trial.promises_bits() {
                return Ok(trial.fail("hidden-pad", case, &plan, Tier::SameOrder, "", &found));
            }
        }
        let held = against(&truth(trial, case, &logical)?, &output);
        if !held.found.agree {
            let why = Reference::DERIVATION;
            return Ok(trial.fail("hidden-pad", case, &plan, held.tier, why, &held.found));
        }
        let tier = match held.tier {
            Tier::Derived if kept => Tier::OtherBits,
            tier => tier,
        };
        Ok(held.proved(&output, tier))
    };
    settle(run(trial))
}

/// token-pad: a row's bits depend neither on its batch nor on pad rows.
pub(super) fn token_pad(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        if case.t == 0 {
            return Ok(Verdict::Vacuous(Vacuous::NoTokens));
        }
        let plan = trial.plan(case)?;
        let logical = trial.fill(case)?;
        let mut packed = trial.pack(&plan, &logical)?;
        let output = trial.run(&plan, &mut packed)?;
        if plan.tokens_padded > plan.dims.t {
            let clean = packed.clone();
            poison_token_rows(&plan, &mut packed);
            let poisoned = trial.run(&plan, &mut packed)?;
            let found = same_bits(&output, &poisoned);
            if !found.agree {
                let again = Again {
                    plan: &plan,
                    packed: &clean,
                    logical: &logical,
                };
                let (tier, found) = again.judge(case, trial, &output, &poisoned, found)?;
                if !found.agree {
                    let why = "NaN in the pad rows of the input";
                    return Ok(trial.fail("token-pad", case, &plan, tier, why, &found));
                }
            }
        }
        trial.done(packed);
        if case.t == 1 && plan.tokens_padded == 1 {
            return Ok(Verdict::Vacuous(Vacuous::NothingPadded));
        }
        // The last token alone: first and middle rows share its path in every kernel known.
        let token = output.tokens - 1;
        let alone_case = Case {
            t: 1,
            ..case.clone()
        };
        let alone_plan = {
            let mut p = plan_with(&alone_case, trial.rules).map_err(broken)?;
            p.numerics = plan.numerics;
            p
        };
        let alone = only_token(case, &logical, token);
        let packed = trial.pack_true(&alone_plan, &alone)?;
        let single = trial.run_true(&alone_plan, &packed)?;
        trial.done(packed);
        if trial.subject.schedule().is_none() {
            // Another number of rows may take another path: both are held against the reference.
            let held = against(&truth(trial, case, &logical)?, &output);
            let one = against(&truth(trial, &alone_case, &alone)?, &single);
            for (case, plan, side) in [(case, &plan, &held), (&alone_case, &alone_plan, &one)] {
                if !side.found.agree {
                    let why = Reference::DERIVATION;
                    return Ok(trial.fail("token-pad", case, plan, side.tier, why, &side.found));
                }
            }
            return Ok(held.proved(&output, held.tier));
        }
        let h = output.hidden;
        let row = Output {
            tokens: 1,
            hidden: h,
            values: output.values[token * h..(token + 1) * h].to_vec(),
            ids: Vec::new(),
            weights: Vec::new(),
        };
        let found = same_bits(&single, &row);
        if !found.agree {
            return Ok(trial.fail("token-pad", case, &plan, Tier::SameOrder, "", &found));
        }
        trial.done_with(logical);
        Ok(proved(&output, Tier::SameOrder))
    };
    settle(run(trial))
}

/// What a difference between two runs on the same sizes is judged by.
pub(super) struct Again<'a> {
    pub(super) plan: &'a Plan,
    pub(super) packed: &'a PackedInputs,
    pub(super) logical: &'a Logical,
}

/// How often the same bytes are asked again before a difference is called the poison's. A program that adds in any
/// order gives the clean bits again with probability p, for three experts 1/3 at the least (which of them is added last
/// decides): its clean and its poisoned output differ, and all of so many more agree with the clean one, with
/// (1 - p) p^32, at most 1.1 % (at p = 32/33).
const TIMES: usize = 32;

impl Again<'_> {
    /// The comparison that holds: of bits, unless a subject that promises no order gives other bits
    /// for the same bytes; then the other output's distance from the reference.
    pub(super) fn judge(
        &self,
        case: &Case,
        trial: &mut Trial<'_>,
        clean: &Output,
        other: &Output,
        found: Comparison,
    ) -> Result<(Tier, Comparison), Verdict> {
        if trial.subject.schedule().is_some() {
            return Ok((Tier::SameOrder, found));
        }
        for _ in 0..TIMES {
            let again = trial.run_true(self.plan, self.packed)?;
            if !same_bits(clean, &again).agree {
                let held = against(&truth(trial, case, self.logical)?, other);
                return Ok((held.tier, held.found));
            }
        }
        Ok((Tier::SameOrder, found))
    }
}

/// NaN in every pad row of the input: nothing may reduce them into a token.
fn poison_token_rows(plan: &Plan, packed: &mut PackedInputs) {
    let (t, hp) = (plan.dims.t as usize, plan.hidden_padded as usize);
    packed.x.f32s_mut()[t * hp..].fill(f32::NAN);
}

/// The logical tensors with one token only.
fn only_token(case: &Case, logical: &Logical, token: usize) -> Logical {
    let (h, choices, k) = (case.h as usize, case.choices() as usize, case.k as usize);
    let x = &logical.x.f32s()[token * h..(token + 1) * h];
    let router = match &logical.router {
        RouterInput::Given { ids, weights } => RouterInput::Given {
            ids: ids[token * k..(token + 1) * k].to_vec(),
            weights: weights[token * k..(token + 1) * k].to_vec(),
        },
        RouterInput::Logits { logits, bias } => RouterInput::Logits {
            logits: logits[token * choices..(token + 1) * choices].to_vec(),
            bias: bias.clone(),
        },
    };
    Logical {
        x: Tensor::from_f32("x", &[1, h], x),
        router,
        ..logical.clone()
    }
}

/// route-unchanged: padding changes neither the experts chosen nor their weights.
pub(super) fn route_unchanged(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        if !trial.subject.routes_itself() {
            let why = "the subject takes the routing that it is given";
            return Err(Verdict::Skip(SkipReason::Inapplicable(why.to_owned())));
        }
        if case.t == 0 {
            return Ok(Verdict::Vacuous(Vacuous::NoTokens));
        }
        let (_, logical, output) = trial.attempt(case)?;
        let truth = truth(trial, case, &logical)?;
        let k = case.k as usize;
        if truth.ambiguous.iter().all(|ambiguous| *ambiguous) {
            return Ok(Verdict::Vacuous(Vacuous::AllAmbiguous));
        }
        for token in (0..output.tokens).filter(|&t| !truth.ambiguous[t]) {
            let at = token * k..(token + 1) * k;
            let (wanted, actual) = (&truth.ids[at.clone()], &output.ids[at.clone()]);
            if wanted != actual {
                return Ok(fact(
                    "route-unchanged",
                    case,
                    format!("experts of token {token}"),
                    format!("{wanted:?}"),
                    format!("{actual:?}"),
                )
                .into());
            }
            for slot in at {
                let (wanted, actual) = (truth.weights[slot], f64::from(output.weights[slot]));
                let limit = truth.weight_bound[slot];
                // NaN is within nothing.
                let within = (wanted - actual).abs() <= limit;
                if !within {
                    let place = format!("weight {slot} of token {token}");
                    let (wanted, actual) = (wanted.to_string(), actual.to_string());
                    return Ok(Finding {
                        subject: trial.subject.name().to_owned(),
                        bound: format!("{} {limit:e}", Tier::Derived.name()),
                        ..fact("route-unchanged", case, place, wanted, actual)
                    }
                    .into());
                }
            }
        }
        Ok(Verdict::Pass(Tier::Derived))
    };
    settle(run(trial))
}

/// guard-intact: nothing outside the buffers is written, and the output has its shape.
pub(super) fn guard_intact(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        if !trial.subject.shares_memory() {
            let why = "the subject's memory is its own: it cannot write outside padproof's buffers";
            return Err(Verdict::Skip(SkipReason::Inapplicable(why.to_owned())));
        }
        let plan = trial.plan(case)?;
        let logical = trial.fill(case)?;
        let mut packed = trial.pack(&plan, &logical)?;
        let output = trial.run(&plan, &mut packed)?;
        if !packed.guards_intact() {
            let wanted = "untouched".to_owned();
            return Ok(fact(
                "guard-intact",
                case,
                "guards of the inputs".to_owned(),
                wanted,
                "overwritten".to_owned(),
            )
            .into());
        }
        trial.done(packed);
        let wanted = (case.t as usize, case.h as usize);
        let actual = (output.tokens, output.hidden);
        if wanted != actual || output.values.len() != wanted.0 * wanted.1 {
            return Ok(fact(
                "guard-intact",
                case,
                "shape of the output".to_owned(),
                format!("{wanted:?}"),
                format!("{actual:?}"),
            )
            .into());
        }
        trial.done_with(logical);
        Ok(Verdict::Pass(Tier::Bytes))
    };
    settle(run(trial))
}

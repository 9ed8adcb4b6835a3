//! Poisons padding, one tail at a time.
//!
//! It must not touch a logical element. Layer 8.

use super::outputs::Again;
use super::trial::{Outcome, Trial, is_padded, proved, settle};
use super::{Tier, Vacuous, Verdict};
use crate::case::Case;
use crate::compare::same_bits;
use crate::layout::{PackedInputs, Pads, RankInputs, map, set_pads};
use crate::num::Dtype;
use crate::plan::{Plan, Role};
use crate::terms::ActQuant;

/// A finite code far from zero, small enough to keep products of it finite.
fn loud(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 96.0f32.to_bits(),
        Dtype::F16 => 0x5600,
        Dtype::Bf16 => 0x42c0,
        Dtype::E4m3 | Dtype::E4m3Fnuz => 0x68,
        Dtype::E5m2 => 0x54,
        Dtype::E2m1 => 7,
        Dtype::E8m0 => 0x82,
        Dtype::Int4 => 15,
        Dtype::Int8 => 100,
    }
}

/// poison-isolated: each padded tail may hold any finite value by itself, and storage that is
/// never multiplied may hold NaN, without changing a bit of the output: so its partner tail is
/// really zero.
pub(super) fn poison_isolated(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let plan = trial.plan(case)?;
        if !is_padded(&plan) {
            return Ok(Verdict::Vacuous(Vacuous::NothingPadded));
        }
        let logical = trial.fill(case)?;
        let mut packed = trial.pack(&plan, &logical)?;
        let clean = trial.run(&plan, &mut packed)?;
        let mut weakest = Tier::SameOrder;
        let tails = tails(&plan);
        for batch in tails.chunks(at_once(trial, &packed)) {
            let poisoned = batch
                .iter()
                .map(|tail| (tail, tail.poisoned(&plan, &packed)));
            // Bytes that a subject elsewhere has seen already tell nothing new.
            let elsewhere = !trial.subject.shares_memory();
            let (tails, mut inputs): (Vec<&Tail>, Vec<PackedInputs>) = poisoned
                .filter(|(_, inputs)| !elsewhere || *inputs != packed)
                .unzip();
            let outputs = trial.run_all(&plan, &mut inputs)?;
            for (tail, output) in tails.iter().zip(&outputs) {
                let found = same_bits(&clean, output);
                if found.agree {
                    continue;
                }
                let again = Again {
                    plan: &plan,
                    packed: &packed,
                    logical: &logical,
                };
                let (tier, found) = again.judge(case, trial, &clean, output, found)?;
                if found.agree {
                    weakest = tier;
                    continue;
                }
                let why = format!("poison in {}", tail.name);
                let Verdict::Fail(mut finding) =
                    trial.fail("poison-isolated", case, &plan, tier, &why, &found)
                else {
                    return Err(Verdict::Broken("a failure is a finding".to_owned()));
                };
                finding.note = Some(why);
                return Ok(Verdict::Fail(finding));
            }
        }
        trial.done(packed);
        trial.done_with(logical);
        Ok(proved(&clean, weakest))
    };
    settle(run(trial))
}

struct Tail {
    name: &'static str,
    roles: &'static [Role],
    pads: Pads,
    input: bool,
}

impl Tail {
    /// The packed tensors with this tail poisoned.
    fn poisoned(&self, plan: &Plan, packed: &PackedInputs) -> PackedInputs {
        let mut poisoned = packed.clone();
        for &role in self.roles {
            poison(plan, &mut poisoned, role, self.pads);
        }
        if self.input {
            let (h, hp) = (plan.dims.h as usize, plan.hidden_padded as usize);
            for row in poisoned.x.f32s_mut().chunks_exact_mut(hp.max(1)) {
                row[h..].fill(96.0);
            }
        }
        poisoned
    }
}

/// How many copies of the inputs are handed over at once: one to a subject in this process, as many
/// as a little memory holds to one elsewhere.
fn at_once(trial: &Trial<'_>, packed: &PackedInputs) -> usize {
    /// Memory of the copies (bytes).
    const MOST: usize = 16 << 20;
    if trial.subject.shares_memory() {
        return 1;
    }
    let rank = |rank: &RankInputs| rank.iter().map(|(_, t)| t.bytes().len()).sum::<usize>();
    let bytes = packed.x.bytes().len() + packed.ranks.iter().map(rank).sum::<usize>();
    (MOST / bytes.max(1)).clamp(1, 16)
}

/// The tails that may be poisoned one at a time; the last is all storage at once.
fn tails(plan: &Plan) -> Vec<Tail> {
    let tail = |name, roles, pads, input| Tail {
        name,
        roles,
        pads,
        input,
    };
    let mut all = vec![
        tail(
            "w13's scale padding",
            &[Role::W13Scale][..],
            Pads::Logical,
            false,
        ),
        tail("w2's scale padding", &[Role::W2Scale], Pads::Logical, false),
        tail(
            "storage",
            &[Role::W13Scale, Role::W2Scale, Role::W13, Role::W2],
            Pads::Storage,
            false,
        ),
    ];
    // A dirty intermediate enters the amax of its group, and a dirty input that of its token.
    if plan.numerics.qh == ActQuant::None || plan.numerics.qh == ActQuant::Static {
        all.push(tail("w13's tails", &[Role::W13], Pads::Logical, false));
        all.push(tail(
            "w13 bias's tail",
            &[Role::W13Bias],
            Pads::Logical,
            false,
        ));
    }
    all.push(tail("w2's tails", &[Role::W2], Pads::Logical, false));
    if plan.numerics.qx == ActQuant::None || plan.numerics.qx == ActQuant::Static {
        all.push(tail("the input's hidden tail", &[], Pads::Logical, true));
    }
    all
}

fn poison(plan: &Plan, packed: &mut PackedInputs, role: Role, pads: Pads) {
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get_mut(role)) else {
            continue;
        };
        let code = match pads {
            Pads::Storage => map.dtype.nan_code().unwrap_or_else(|| loud(map.dtype)),
            _ => loud(map.dtype),
        };
        set_pads(&map, tensor, pads, code);
    }
}

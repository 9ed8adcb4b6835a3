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
use crate::plan::{Along, Plan, Role};
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

/// poison-isolated: each padded tail may hold any finite value by itself, then all that meet the same
/// zeros may at once, and storage that is never multiplied may hold NaN, without changing a bit of the
/// output: so the partner tail is really zero.
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
    /// Tensors whose logical pads are poisoned.
    logical: &'static [Role],
    /// Tensors whose storage padding is.
    storage: &'static [Role],
    /// Whether the input's hidden tail is.
    input: bool,
}

impl Tail {
    /// The packed tensors with this tail poisoned.
    fn poisoned(&self, plan: &Plan, packed: &PackedInputs) -> PackedInputs {
        let mut poisoned = packed.clone();
        for (roles, pads) in [(self.logical, Pads::Logical), (self.storage, Pads::Storage)] {
            for &role in roles {
                poison(plan, &mut poisoned, role, pads);
            }
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

/// The tails that may be poisoned: each alone, and then at once all that one and the same zeros silence.
/// A tail is left out where its partner is none of zeros by the plan's own word (PP137).
fn tails(plan: &Plan) -> Vec<Tail> {
    const STORAGE: &[Role] = &[Role::W13Scale, Role::W2Scale, Role::W13, Role::W2];
    let tail = |name, logical, storage, input| Tail {
        name,
        logical,
        storage,
        input,
    };
    let coded = plan.weight.element().decode(plan.weight_pad) == 0.0;
    // A dirty intermediate enters the amax of its group, and a dirty input that of its token.
    let free = |quant| matches!(quant, ActQuant::None | ActQuant::Static);
    let first = free(plan.numerics.qh) && plan.pads_inert(Role::W2, Along::Width);
    let input = free(plan.numerics.qx) && plan.pads_inert(Role::W13, Along::Hidden);
    let mut all = vec![
        tail("w2's scale padding", &[Role::W2Scale][..], &[][..], false),
        tail("storage", &[], STORAGE, false),
        tail("w2's tails", &[Role::W2], &[], false),
    ];
    if coded || first {
        let scale = &[Role::W13Scale][..];
        all.insert(0, tail("w13's scale padding", scale, &[], false));
    }
    if first {
        all.push(tail("w13's tails", &[Role::W13], &[], false));
        all.push(tail("w13 bias's tail", &[Role::W13Bias], &[], false));
    }
    if input {
        all.push(tail("the input's hidden tail", &[], &[], true));
    }
    // Where the code itself is not zero, the zeros are those of the scales.
    all.push(tail(
        "all that zeros of w13 silence",
        match coded {
            true => &[Role::W13Scale, Role::W2, Role::W2Scale],
            false => &[Role::W2, Role::W2Scale],
        },
        STORAGE,
        input,
    ));
    if first {
        all.push(tail(
            "all that zeros of w2 and of the input silence",
            match coded {
                true => &[Role::W13, Role::W13Bias, Role::W13Scale, Role::W2Scale],
                false => &[Role::W13, Role::W13Bias, Role::W13Scale],
            },
            STORAGE,
            false,
        ));
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

//! Wrong kernels.

use crate::layout::PackedInputs;
use crate::plan::{Plan, Role};
use crate::tensor::{Output, RouterInput};
use crate::terms::Route;

/// Flips the last mantissa bit of every finite, non-zero output.
fn nudge(output: &mut Output) -> bool {
    let mut changed = false;
    for v in output.values.iter_mut().filter(|v| v.is_normal()) {
        *v = f32::from_bits(v.to_bits() ^ 1);
        changed = true;
    }
    changed
}

/// M23: the padded rows are taken for rows of the logical width: every row starts too early.
pub(super) fn sliced_wrong(plan: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    let pad = (plan.hidden_padded - plan.dims.h) as usize;
    let applies = pad > 0 && output.tokens > 1 && output.hidden > 0;
    if applies {
        let n = output.values.len();
        output.values[output.hidden..].rotate_right(pad % (n - output.hidden).max(1));
    }
    applies
}

/// M37: a pad row of the token axis is reduced into a real token: unseen while it holds zeros.
pub(super) fn pad_row_reduced(plan: &Plan, packed: &mut PackedInputs, output: &mut Output) -> bool {
    let row = plan.dims.t.saturating_mul(plan.hidden_padded) as usize;
    let (Some(stale), Some(value)) = (packed.x.f32s().get(row), output.values.first_mut()) else {
        return false;
    };
    *value += stale;
    true
}

/// What a token's identity experts give is added once more for each rank but the first: computed by every rank, and
/// added with the ranks' shares.
pub(super) fn identity_on_every_rank(
    plan: &Plan,
    packed: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    let more = plan.parallel.tp.saturating_sub(1) as f32;
    add_identity(plan, packed, output, more)
}

/// Ids of identity experts are left out, as of experts that no rank holds.
pub(super) fn identity_dropped(
    plan: &Plan,
    packed: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    add_identity(plan, packed, output, -1.0)
}

/// Adds what the token's identity experts give, times a factor.
fn add_identity(plan: &Plan, packed: &PackedInputs, output: &mut Output, factor: f32) -> bool {
    let (h, k) = (output.hidden, plan.dims.k.max(1) as usize);
    let stride = plan.hidden_padded as usize;
    let mut changed = false;
    for (n, (&id, &weight)) in output.ids.iter().zip(&output.weights).enumerate() {
        if u64::from(id) < plan.dims.e || factor == 0.0 {
            continue;
        }
        let x = &packed.x.f32s()[n / k * stride..][..h];
        for (y, x) in output.values[n / k * h..][..h].iter_mut().zip(x) {
            *y += factor * weight * x;
            changed = true;
        }
    }
    changed
}

/// Other bits for more than one token, as a tile chosen by the batch size gives.
pub(super) fn batch_decides_order(_: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    output.tokens > 1 && nudge(output)
}

/// Other bits when the intermediate axis is padded, as split-K chosen from the padded width gives.
pub(super) fn width_decides_order(plan: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    plan.width_padded != plan.width && nudge(output)
}

/// Other bits when the hidden axis is padded, as split-K chosen from the padded size gives.
pub(super) fn hidden_decides_order(plan: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    plan.hidden_padded != plan.dims.h && nudge(output)
}

/// A write past the end of a buffer.
pub(super) fn stray_write(plan: &Plan, packed: &mut PackedInputs, _: &mut Output) -> bool {
    let Some(t) = packed.ranks[0]
        .get_mut(Role::W13)
        .filter(|_| plan.dims.t > 0)
    else {
        return false;
    };
    t.break_guard();
    true
}

/// The router breaks ties by the higher id: among those chosen, and for the last place.
pub(super) fn ties_to_the_higher_id(
    plan: &Plan,
    packed: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    let RouterInput::Logits { logits, bias } = &packed.router else {
        return false;
    };
    let (choices, k) = (plan.choices() as usize, plan.dims.k as usize);
    let mut changed = false;
    for (ids, logits) in output
        .ids
        .chunks_exact_mut(k)
        .zip(logits.chunks_exact(choices))
    {
        let tied = |a: u32, b: u32| {
            let (a, b) = (a as usize, b as usize);
            logits[a] == logits[b] && bias.get(a) == bias.get(b)
        };
        for n in 0..k {
            // Groups decide before experts do.
            let beyond = (ids[n] + 1..choices as u32).filter(|_| !plan.numerics.route.grouped());
            let free = beyond.filter(|id| !ids.contains(id));
            if let Some(higher) = free.filter(|id| tied(ids[n], *id)).max() {
                ids[n] = higher;
                changed = true;
            }
            for m in 0..n {
                if tied(ids[m], ids[n]) && ids[m] < ids[n] {
                    ids.swap(m, n);
                    changed = true;
                }
            }
        }
    }
    changed
}

/// The renormalisation of routing weights is forgotten: they are the scores that the chosen experts have
/// among all.
pub(super) fn weights_not_renormalised(
    plan: &Plan,
    packed: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    let softmax = match plan.numerics.route {
        Route::SoftmaxRenorm | Route::SoftmaxBiasRenorm => true,
        Route::SigmoidRenorm | Route::SigmoidBias | Route::GroupedSigmoidBias => false,
        _ => return false,
    };
    let mut changed = false;
    for (weights, ids, logits) in routed(plan, packed, output) {
        let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let score = |logit: f32| match softmax {
            true => (logit - top).exp(),
            false => 1.0 / (1.0 + (-logit).exp()),
        };
        let all: f32 = match softmax {
            true => logits.iter().copied().map(score).sum(),
            false => 1.0,
        };
        // What the renormalisation divides by.
        let chosen: f32 = ids.iter().map(|id| score(logits[*id as usize])).sum();
        weights.iter_mut().for_each(|w| *w *= chosen / all);
        changed = true;
    }
    changed
}

/// Exponentials are taken of the logits themselves, the largest not taken off first: infinity over infinity where f32
/// ends.
pub(super) fn largest_logit_kept(
    plan: &Plan,
    packed: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    let softmax = [Route::Softmax, Route::SoftmaxRenorm, Route::TopkSoftmax];
    if !softmax.contains(&plan.numerics.route) {
        return false;
    }
    let mut changed = false;
    for (weights, ids, logits) in routed(plan, packed, output) {
        for (weight, id) in weights.iter_mut().zip(ids) {
            if logits[*id as usize].exp().is_infinite() {
                *weight = f32::NAN;
                changed = true;
            }
        }
    }
    changed
}

/// The sparse mixer's mask is forgotten: each weight is a softmax over all experts left.
pub(super) fn mixer_not_masked(
    plan: &Plan,
    packed: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    if plan.numerics.route != Route::SparseMixer {
        return false;
    }
    let factor = plan.numerics.factor as f32 / 1000.0;
    let mut changed = false;
    for (weights, ids, logits) in routed(plan, packed, output) {
        for (slot, weight) in weights.iter_mut().enumerate() {
            let own = logits[ids[slot] as usize];
            let left = (0..logits.len() as u32).filter(|id| !ids[..slot].contains(id));
            let sum: f32 = left.map(|id| (logits[id as usize] - own).exp()).sum();
            changed |= *weight != factor / sum;
            *weight = factor / sum;
        }
    }
    changed
}

/// Weights, ids and logits of each token; of none where the routing is given.
fn routed<'a>(
    plan: &Plan,
    packed: &'a PackedInputs,
    output: &'a mut Output,
) -> impl Iterator<Item = (&'a mut [f32], &'a [u32], &'a [f32])> {
    let logits = match &packed.router {
        RouterInput::Logits { logits, .. } => &logits[..],
        RouterInput::Given { .. } => &[],
    };
    let (choices, k) = (plan.choices() as usize, plan.dims.k as usize);
    let weights = output.weights.chunks_exact_mut(k);
    let chosen = weights.zip(output.ids.chunks_exact(k));
    let tokens = chosen.zip(logits.chunks_exact(choices));
    tokens.map(|((weights, ids), logits)| (weights, ids, logits))
}

/// The ranks' partial outputs are averaged where their sum is wanted.
pub(super) fn ranks_averaged(plan: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    let applies = plan.parallel.tp > 1 && output.values.iter().any(|v| *v != 0.0);
    if applies {
        for v in &mut output.values {
            *v /= plan.parallel.tp as f32;
        }
    }
    applies
}

//! Wrong kernels.

use crate::layout::PackedInputs;
use crate::plan::{Plan, Role};
use crate::tensor::Output;

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

/// A tile chosen by the batch size: other bits for more than one token.
pub(super) fn batch_decides_order(_: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    output.tokens > 1 && nudge(output)
}

/// Split-K chosen from the padded width: other bits when the intermediate axis is padded.
pub(super) fn width_decides_order(plan: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    plan.width_padded != plan.width && nudge(output)
}

/// Split-K chosen from the padded hidden size.
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

/// The router breaks ties by the higher id.
pub(super) fn ties_to_the_higher_id(
    plan: &Plan,
    _: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    let k = plan.dims.k as usize;
    let applies = k >= 2 && !output.ids.is_empty();
    if applies {
        for ids in output.ids.chunks_exact_mut(k) {
            ids.reverse();
        }
    }
    applies
}

/// The renormalisation of routing weights is forgotten.
pub(super) fn weights_not_renormalised(
    _: &Plan,
    _: &mut PackedInputs,
    output: &mut Output,
) -> bool {
    for w in &mut output.weights {
        *w *= 0.75;
    }
    !output.weights.is_empty()
}

/// Ranks reduced in an order that depends on tp: other bits, still within every bound.
pub(super) fn sum_loses_a_rank(plan: &Plan, _: &mut PackedInputs, output: &mut Output) -> bool {
    let applies = plan.parallel.tp > 1 && output.values.iter().any(|v| *v != 0.0);
    if applies {
        for v in &mut output.values {
            *v -= *v / plan.parallel.tp as f32;
        }
    }
    applies
}

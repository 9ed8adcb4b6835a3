//! Wrong loaders that quantise anew, padding included.
//!
//! It must not change what is real but by the scale that it takes. Layer 6.

use crate::layout::{PackedInputs, for_each, map};
use crate::num::{Dtype, Encode};
use crate::plan::{Plan, Role};

/// How many times larger than any real number the memory behind a tail is: a power of two.
const GARBAGE: f32 = 64.0;

/// M29: gate and up get one scale, taken after padding from a tail that held what the memory did: it is
/// far too large, and codes made anew under it lose their last bits.
pub(super) fn requantised_over_garbage(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let whole = |s: crate::plan::ScalePlan| (s.row_block, s.col_block) == (0, 0);
    let applies = plan.width != plan.width_padded
        && plan.weight.element() == Dtype::E4m3
        && plan.dims.halves == 2
        && plan.w13_scale.is_some_and(whole);
    if !applies {
        return false;
    }
    let i = usize::try_from(plan.dims.i).unwrap_or(usize::MAX);
    let mut changed = false;
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        let (Ok(map), Some(scales)) = (map(plan, Role::W13, n), rank.get_mut(Role::W13Scale))
        else {
            continue;
        };
        let old = scales.f32s().to_vec();
        for pair in scales.f32s_mut().as_chunks_mut::<2>().0 {
            *pair = [pair[0].max(pair[1]) * GARBAGE; 2];
        }
        let new = scales.f32s().to_vec();
        let Some(weights) = rank.get_mut(Role::W13) else {
            continue;
        };
        let [experts, rows, cols] = map.shape();
        for (e, r) in (0..experts).flat_map(|e| (0..rows).map(move |r| (e, r))) {
            let Some(row) = map.rows.to_logical(r) else {
                continue;
            };
            let at = 2 * e + row / i;
            for c in 0..cols {
                let place = map.address(e, r, c);
                let code = map.grid.read(weights.bytes(), place);
                let value = f64::from(map.dtype.decode(code)) * f64::from(old[at]);
                let again = map.dtype.encode(value / f64::from(new[at]), Encode::OCP);
                map.grid.write(weights.bytes_mut(), place, again);
                changed |= again != code;
            }
        }
    }
    changed
}

/// M30: blocks of padding are quantised as well, without a floor under their scale: it is 0, and their
/// codes 0 / 0.
pub(super) fn empty_blocks_quantised(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let Some(nan) = plan.weight.element().nan_code() else {
        return false;
    };
    let mut changed = false;
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        for (role, scales, planned) in [
            (Role::W13, Role::W13Scale, plan.w13_scale),
            (Role::W2, Role::W2Scale, plan.w2_scale),
        ] {
            let (Ok(wmap), Ok(smap)) = (map(plan, role, n), map(plan, scales, n)) else {
                continue;
            };
            let Some(planned) = planned.filter(|s| s.dtype == Dtype::F32) else {
                continue;
            };
            let block = |at: usize, size: u64| match usize::try_from(size) {
                Ok(0) | Err(_) => 0,
                Ok(size) => at / size,
            };
            // Rows are counted half by half.
            let halves = match role {
                Role::W13 => usize::try_from(plan.dims.halves).unwrap_or(1),
                _ => 1,
            };
            let [experts, rows, cols] = wmap.shape();
            let (each, scale_rows) = (rows / halves, smap.shape()[1] / halves);
            let places = (0..experts).flat_map(|e| (0..rows).map(move |r| (e, r)));
            for (e, r) in places {
                let row = match planned.row_block {
                    1 => r,
                    size => r / each * scale_rows + block(r % each, size),
                };
                for c in 0..cols {
                    let col = block(c, planned.col_block);
                    if smap.logical(e, row, col).is_some() {
                        continue;
                    }
                    let (at, of) = (wmap.address(e, r, c), smap.address(e, row, col));
                    if let Some(t) = rank.get_mut(role) {
                        changed |= wmap.grid.read(t.bytes(), at) != nan;
                        wmap.grid.write(t.bytes_mut(), at, nan);
                    }
                    if let Some(t) = rank.get_mut(scales) {
                        smap.grid.write(t.bytes_mut(), of, 0);
                    }
                }
            }
        }
    }
    changed
}

/// M18: the kernel keeps as many exponents below the largest scale of a tensor as real scales span. Padding of 1.0 is
/// larger, and what lies too far below it is taken for the least that is kept.
pub(super) fn scale_range_over_pads(plan: &Plan, packed: &mut PackedInputs) -> bool {
    const ONE: u32 = 127;
    let mut changed = false;
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        for role in [Role::W13Scale, Role::W2Scale] {
            let (Ok(map), Some(scales)) = (map(plan, role, n), rank.get_mut(role)) else {
                continue;
            };
            if map.dtype != Dtype::E8m0 {
                continue;
            }
            let (mut real, mut pads) = (Vec::new(), Vec::new());
            for_each(&map, |_, at, logical| match logical {
                Some(_) => real.push((at, map.grid.read(scales.bytes(), at))),
                None => pads.push(at),
            });
            let codes = || real.iter().map(|(_, code)| *code);
            let (Some(least), Some(most), false) = (codes().min(), codes().max(), pads.is_empty())
            else {
                continue;
            };
            let kept = most.max(ONE) - (most - least);
            for at in pads {
                map.grid.write(scales.bytes_mut(), at, ONE);
            }
            for (at, code) in real {
                map.grid.write(scales.bytes_mut(), at, code.max(kept));
                changed |= code < kept;
            }
        }
    }
    changed
}

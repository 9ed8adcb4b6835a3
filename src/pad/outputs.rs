//! Outputs of one expert, computed from padded bytes and held against the reference's of unpadded ones.
//!
//! It must not choose experts. Layer 8.

use super::certificate::DifferentialNote;
use super::error::PadError;
use super::hold::{Plans, count, pack, wrong};
use super::sizes::index;
use crate::compare::{Bound, compare, same_bits};
use crate::layout::PackedInputs;
use crate::num::{Dtype, Encode};
use crate::plan::unpadded;
use crate::reference::{Reference, reference};
use crate::rng;
use crate::subject::{Cpu, Subject};
use crate::tensor::{Logical, RouterInput, Tensor};

/// Tokens of a comparison of outputs.
pub(super) const TOKENS: u64 = 4;
/// Which outputs prove nothing.
pub(super) const BEYOND: &str = "NaN or beyond f32, padded and unpadded";
/// Seed of the input that outputs are computed from.
const SEED: u64 = 0x7061_6470_726f_6f66;

/// The layer with scales of the type that the reference computes with: rounded, padded and unpadded ones
/// alike, so that what padding does to outputs shows all the same.
pub(super) fn computed(mut logical: Logical, stored: Option<Dtype>) -> Logical {
    let Some(stored) = stored else {
        return logical;
    };
    let scales = [&mut logical.w13_scale, &mut logical.w2_scale];
    for scales in scales.into_iter().flatten() {
        let wide = scales.bits() / 8;
        let mut rounded = Tensor::zeroed(scales.name(), scales.shape(), 16);
        let codes = scales.bytes().chunks_exact(wide);
        for (code, target) in codes.zip(rounded.bytes_mut().chunks_exact_mut(2)) {
            let code = code.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
            let value = f64::from(stored.decode(code));
            let code = Dtype::Bf16.encode(value, Encode::default());
            target.copy_from_slice(&code.to_le_bytes()[..2]);
        }
        *scales = rounded;
    }
    logical
}

/// The layer with an input of so many tokens, each for its one expert.
pub(super) fn input(mut logical: Logical, tokens: u64) -> Logical {
    let hidden = logical.w13.shape()[2];
    let tokens = index(tokens).unwrap_or(0);
    logical.x = Tensor::zeroed("x", &[tokens, hidden], 32);
    for (n, x) in (0..).zip(logical.x.f32s_mut()) {
        // 24 bits, in [-1, 1).
        *x = (rng::value(SEED, 0, n) >> 40) as f32 / 8_388_608.0 - 1.0;
    }
    // Read as matrices of one column, computed with as rows.
    let columns = [
        &mut logical.w13_global,
        &mut logical.w2_global,
        &mut logical.w13_bias,
        &mut logical.w2_bias,
    ];
    for column in columns.into_iter().flatten() {
        *column = Tensor::from_f32(column.name(), &column.shape()[..2], column.f32s());
    }
    logical.router = RouterInput::Given {
        ids: vec![0; tokens],
        weights: vec![1.0; tokens],
    };
    logical
}

pub(super) fn compared(
    plans: &Plans,
    (prefix, expert): (&str, usize),
    logical: &Logical,
    packed: &PackedInputs,
) -> Result<DifferentialNote, PadError> {
    let mut cpu = Cpu::new();
    let note = |(elements, vacuous): (usize, usize), verdict: String| DifferentialNote {
        prefix: prefix.to_owned(),
        experts: vec![count(expert)],
        tokens: TOKENS,
        elements: count(elements),
        vacuous: count(vacuous),
        verdict,
    };
    if let Err(why) = cpu.supports(&plans.before) {
        return Ok(note((0, 0), format!("skipped: {why}")));
    }
    let mut output = cpu.run(&plans.before, packed).map_err(wrong)?;
    let mut truth = reference(&plans.case, logical).map_err(wrong)?;
    let bare = unpadded(&plans.before)?;
    let original = cpu.run(&bare, &pack(&bare, logical)?).map_err(wrong)?;
    let elements = output.values.len();
    let sizes = index(plans.before.width).zip(index(plans.before.width_padded));
    let stable = |(small, large)| cpu.schedule().is_some_and(|s| s.pad_stable(small, large));
    let stable = sizes.is_some_and(stable);
    if stable && !same_bits(&original, &output).agree {
        return Err(wrong(format!(
            "{prefix}{expert} gives other bits than the same ranks unpadded"
        )));
    }
    // What f32 cannot hold unpadded either is no fault, and proves nothing.
    let lost: Vec<usize> = (0..elements)
        .filter(|&n| alike(original.values[n], output.values[n]))
        .collect();
    for &n in &lost {
        output.values[n] = 0.0;
        truth.values[n] = 0.0;
    }
    let bound = Bound::Derived {
        limits: &truth.bound,
        derivation: Reference::DERIVATION.into(),
    };
    let found = compare(&truth.values, &output, &bound);
    if !found.agree {
        let first = found.first.first();
        let told = first.map_or(String::new(), |d| {
            format!(
                ": out[{},{}] wanted {}, got {}",
                d.row, d.col, d.wanted, d.actual
            )
        });
        return Err(wrong(format!(
            "{prefix}{expert} does not give the reference's outputs{told}"
        )));
    }
    let proved = (elements, lost.len());
    if lost.len() == elements {
        return Ok(note(proved, format!("vacuous: every output is {BEYOND}")));
    }
    let mut verdict = "pass: within the derived bound of the reference".to_owned();
    if stable {
        verdict += ", equal bits to the same ranks unpadded";
    }
    if !lost.is_empty() {
        let n = lost.len();
        verdict += &format!("; vacuous for {n} of {elements} elements, {BEYOND}");
    }
    Ok(note(proved, verdict))
}

/// Whether neither value is finite, and both are of one class: NaN, or infinity of one sign.
fn alike(original: f32, padded: f32) -> bool {
    original.is_nan() && padded.is_nan() || original.is_infinite() && original == padded
}

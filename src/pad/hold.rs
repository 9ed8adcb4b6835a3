//! Holds a padded checkpoint against the one it was made of: bytes under a plan, outputs under a bound.
//!
//! It goes by the plan's own cuts and maps, not by this module's axes, so that a fault in these shows.
//! Layer 8.

use super::certificate::{AuditNote, DifferentialNote};
use super::error::PadError;
use super::recipe::Recipe;
use super::sizes::{Blocks, Width, index};
use super::treat::{Tensors, Treat};
use crate::audit::audit;
use crate::case::{Case, PadSpec, Scheme};
use crate::checkpoint::{Checkpoint, Layer, LayerShape};
use crate::compare::{Bound, compare, same_bits};
use crate::layout::{PackedInputs, pack_layer};
use crate::model::Model;
use crate::plan::{Fit, Plan, plan_under, spelled_rule, unpadded};
use crate::reference::{Reference, reference};
use crate::rng;
use crate::subject::{Cpu, Subject};
use crate::tensor::{Logical, RouterInput, Tensor};
use crate::terms::{Bias, Fill, Route, Split, WeightFormat};
use std::collections::BTreeMap;

/// Tokens of a comparison of outputs.
const TOKENS: u64 = 4;
/// Which outputs prove nothing.
pub(super) const BEYOND: &str = "NaN or beyond f32, padded and unpadded";
/// Seed of the input that outputs are computed from.
const SEED: u64 = 0x7061_6470_726f_6f66;

/// Two checkpoints and what connects them.
pub(super) struct Hold<'a> {
    pub(super) model: &'a Model,
    pub(super) recipe: &'a Recipe,
    pub(super) before: &'a Checkpoint,
    pub(super) after: &'a Checkpoint,
}

/// One layer's plans: of the input, padded; and of the output, which needs no padding.
struct Plans {
    case: Case,
    before: Plan,
    after: Plan,
    format: (WeightFormat, WeightFormat),
}

impl<'a> Hold<'a> {
    /// Refuses, before anything is written, what the checks at the end could not look at: shares that no
    /// plan cuts, and experts of one layer in several element types.
    pub(super) fn before(&self, tensors: &'a Tensors) -> Result<(), PadError> {
        for (number, prefix, format) in self.layers(tensors) {
            let width = &self.recipe.routed.width;
            let plans = self.plans(format, 0)?.ok_or_else(|| {
                PadError::Refused(format!(
                    "no plan cuts {} channels into {} shares of {} as this rule does, so that the result could not be audited; nothing was written",
                    width.from, self.recipe.tp, width.slot
                ))
            })?;
            let before = Layer::find(
                self.before,
                self.shape(width.from, plans.format.0),
                Some(number),
            )?;
            if before.prefix() == prefix {
                before.check()?;
            }
        }
        Ok(())
    }

    fn shape(&self, width: u64, weight: WeightFormat) -> LayerShape {
        LayerShape {
            experts: index(self.recipe.experts).unwrap_or(usize::MAX),
            hidden: index(self.recipe.routed.hidden).unwrap_or(usize::MAX),
            intermediate: index(width).unwrap_or(usize::MAX),
            gated: self.recipe.gated,
            interleaved: self.recipe.interleaved,
            weight,
            bias: self.model.bias == Bias::Both,
            shared: false,
        }
    }

    /// Looks at some experts of every layer; none where no plan cuts as the recipe does.
    pub(super) fn audit(&self, tensors: &'a Tensors) -> Result<Option<AuditNote>, PadError> {
        let experts = self.sample();
        let mut note = AuditNote {
            layers: 0,
            experts: (count(experts.len()), self.recipe.experts),
            checked_bytes: 0,
            elements: 0,
            pads: 0,
            differing: 0,
        };
        for (number, prefix, format) in self.layers(tensors) {
            let Some(plans) = self.plans(format, 0)? else {
                return Ok(None);
            };
            let Some((before, after)) = self.pair(&plans, number, prefix)? else {
                continue;
            };
            note.layers += 1;
            for &e in &experts {
                let wanted = input(self.refined(before.read(e..e + 1)?), 0);
                let packed = pack(&plans.after, &input(after.read(e..e + 1)?, 0))?;
                let found = audit(&plans.before, &wanted, &packed).map_err(wrong)?;
                note.checked_bytes += found.checked_bytes;
                note.elements += found.elements;
                note.pads += found.pads;
                note.differing += found.differing;
                if let Some(first) = found.first.first() {
                    return Err(wrong(format!("{prefix}{e}: {first}")));
                }
            }
        }
        Ok(Some(note))
    }

    /// Computes experts of the first and the last layer from padded bytes, and from unpadded ones.
    pub(super) fn differential(
        &self,
        tensors: &'a Tensors,
    ) -> Result<Vec<DifferentialNote>, PadError> {
        let mut layers = self.layers(tensors);
        if layers.len() > 2 {
            layers.drain(1..layers.len() - 1);
        }
        let mut notes = Vec::new();
        for (number, prefix, format) in layers {
            let Some(plans) = self.plans(format, TOKENS)? else {
                continue;
            };
            let Some((before, after)) = self.pair(&plans, number, prefix)? else {
                continue;
            };
            let mut found = None;
            // One NaN can hide an expert: another one is looked at then.
            for e in self.sample() {
                let logical = input(self.refined(before.read(e..e + 1)?), TOKENS);
                let packed = pack(&plans.after, &input(after.read(e..e + 1)?, TOKENS))?;
                let note = compared(&plans, (prefix, e), &logical, &packed)?;
                let vacuous = note.proves_nothing();
                found = Some(note);
                if !vacuous {
                    break;
                }
            }
            notes.extend(found);
        }
        Ok(notes)
    }

    /// The first expert, the last, and one between.
    fn sample(&self) -> Vec<usize> {
        let all = index(self.recipe.experts).unwrap_or(usize::MAX);
        let mut some = vec![0, all / 2, all.saturating_sub(1)];
        some.dedup();
        some
    }

    /// Numbered layers with routed experts, and how their weights are stored.
    fn layers(&self, tensors: &'a Tensors) -> Vec<(u64, &'a str, WeightFormat)> {
        let treat = Treat::new(self.recipe, tensors);
        let mut found: BTreeMap<u64, (&str, WeightFormat)> = BTreeMap::new();
        for (prefix, format) in treat.routed() {
            if let Some(number) = crate::checkpoint::layer_of(prefix) {
                found.entry(number).or_insert((prefix, format));
            }
        }
        found
            .into_iter()
            .map(|(n, (prefix, format))| (n, prefix, format))
            .collect()
    }

    /// The layer in both checkpoints; none where another one has its number (a draft's).
    fn pair(
        &self,
        plans: &Plans,
        number: u64,
        prefix: &str,
    ) -> Result<Option<(Layer<'_>, Layer<'_>)>, PadError> {
        let width = &self.recipe.routed.width;
        let before = Layer::find(
            self.before,
            self.shape(width.from, plans.format.0),
            Some(number),
        )?;
        let after = Layer::find(
            self.after,
            self.shape(width.to, plans.format.1),
            Some(number),
        )?;
        let ours = before.prefix() == prefix && after.prefix() == prefix;
        Ok(ours.then_some((before, after)))
    }

    /// The layer with its scales repeated on the recipe's grid, where that is finer.
    fn refined(&self, mut logical: Logical) -> Logical {
        let Some(blocks) = self.recipe.routed.blocks else {
            return logical;
        };
        let halves = if self.recipe.gated { 2 } else { 1 };
        let (hidden, width) = (self.recipe.routed.hidden, self.recipe.routed.width.from);
        // Groups are along a row: each row keeps its own.
        let along_rows = match self.recipe.routed.groups() {
            true => Blocks { from: 1, to: 1 },
            false => blocks,
        };
        for (tensor, halves, rows, cols) in [
            (&mut logical.w13_scale, halves, width, hidden),
            (&mut logical.w2_scale, 1, hidden, width),
        ] {
            let Some(scales) = tensor else { continue };
            let per = |len: u64, block: u64| index(len.div_ceil(block)).unwrap_or(usize::MAX);
            let ratio = |b: Blocks| index(b.from / b.to).unwrap_or(usize::MAX);
            let coarse = per(cols, blocks.from);
            let half = per(rows, along_rows.from) * coarse;
            let (rows, cols) = (per(rows, along_rows.to), per(cols, blocks.to));
            let (by_row, by_col) = (ratio(along_rows), ratio(blocks));
            let wide = scales.bits() / 8;
            let mut new = Tensor::zeroed(scales.name(), &[1, halves * rows, cols], scales.bits());
            let places = (0..halves * rows).flat_map(|r| (0..cols).map(move |c| (r, c)));
            for ((r, c), target) in places.zip(new.bytes_mut().chunks_exact_mut(wide)) {
                let at = r / rows * half + r % rows / by_row * coarse + c / by_col;
                target.copy_from_slice(&scales.bytes()[at * wide..(at + 1) * wide]);
            }
            *scales = new;
        }
        logical
    }

    fn plans(&self, format: WeightFormat, tokens: u64) -> Result<Option<Plans>, PadError> {
        let recipe = self.recipe;
        let width = &recipe.routed.width;
        let scheme = |intermediate, split| PadSpec {
            intermediate,
            split,
            ..PadSpec::default()
        };
        let finer = match format == recipe.routed.format {
            true => recipe.routed.format_now(),
            false => format,
        };
        let case = Case {
            t: tokens,
            e: 1,
            k: 1,
            h: recipe.routed.hidden,
            i: width.from,
            tp: recipe.tp,
            act: self.model.activation,
            route: Route::Given,
            w: finer,
            bias: self.model.bias,
            fill: Fill::Wild,
            ..Case::default()
        };
        let whole = Case {
            i: width.to,
            ..case.clone()
        };
        let after = plan_under(&whole, &spelled_rule(&scheme(1, Split::Floor), finer)?)?;
        let splits = [
            Split::Prepad,
            Split::Floor,
            Split::Stride,
            Split::CeilBlock,
            Split::Ceil,
            Split::RankChunk,
        ];
        for split in splits {
            let spec = scheme(width.slot, split);
            let before = plan_under(&case, &spelled_rule(&spec, finer)?)?;
            if cuts(&before, width) && after.fit <= Fit::Unknown && after.width_padded == width.slot
            {
                let case = Case {
                    scheme: Scheme::Spelled(spec),
                    ..case
                };
                let format = (format, finer);
                return Ok(Some(Plans {
                    case,
                    before,
                    after,
                    format,
                }));
            }
        }
        Ok(None)
    }
}

/// Whether a plan cuts the axis as a width says.
fn cuts(plan: &Plan, width: &Width) -> bool {
    let same = |(rank, piece): (&crate::plan::RankPlan, &(u64, u64))| {
        (rank.start, rank.len) == *piece || (rank.len == 0 && piece.1 == 0)
    };
    plan.fit <= Fit::Unknown
        && plan.width_padded == width.slot
        && plan.ranks.len() == width.pieces.len()
        && plan.ranks.iter().zip(&width.pieces).all(same)
}

/// The layer with an input of so many tokens, each for its one expert.
fn input(mut logical: Logical, tokens: u64) -> Logical {
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

fn pack(plan: &Plan, logical: &Logical) -> Result<PackedInputs, PadError> {
    pack_layer(plan, logical).map_err(wrong)
}

fn compared(
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

/// The result does not hold: nothing is put in its place.
fn wrong(why: impl std::fmt::Display) -> PadError {
    PadError::Refused(format!("the padded tensors do not hold: {why}"))
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

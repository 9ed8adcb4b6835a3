//! Holds a padded checkpoint against the one it was made of: bytes under a plan, outputs under a bound.
//!
//! It goes by the plan's own cuts and maps, not by this module's axes, so that a fault in these shows.
//! Layer 8.

use super::certificate::{AuditNote, DifferentialNote};
use super::error::PadError;
use super::outputs::{TOKENS, compared, computed, input};
use super::recipe::Recipe;
use super::sizes::{Blocks, Part, Width, index};
use super::treat::{Tensors, Treat};
use crate::audit::{Sample, audit};
use crate::case::{Case, PadSpec, Scheme};
use crate::checkpoint::{Checkpoint, CheckpointError, Layer, LayerId, LayerShape, Place};
use crate::layout::{PackedInputs, pack_layer};
use crate::model::Model;
use crate::num::Dtype;
use crate::plan::{Fit, Plan, Role, plan_under, spelled_rule};
use crate::tensor::{Logical, Tensor};
use crate::terms::{Bias, Fill, Route, Split, WeightFormat};
use std::collections::BTreeMap;

/// Bytes of an expert, logical and on all ranks, up to which all of it is looked at; of a larger one a part of
/// so many. Each is held a few times: memory must not grow with experts.
const WHOLE_MAX: u64 = 160 << 20;
const PART_BYTES: u64 = 48 << 20;

/// Two checkpoints and what connects them.
pub(super) struct Hold<'a> {
    pub(super) model: &'a Model,
    pub(super) recipe: &'a Recipe,
    pub(super) before: &'a Checkpoint,
    pub(super) after: &'a Checkpoint,
}

/// A layer's experts, routed or shared, and how they are stored.
struct Experts<'a> {
    place: Place<'a>,
    shared: bool,
    format: WeightFormat,
    /// The element type of scales, where it is another than the format's.
    scale: Option<Dtype>,
    bias: bool,
    part: &'a Part,
}

/// One layer's plans: of the input, padded; and of the output, which needs no padding.
pub(super) struct Plans {
    pub(super) case: Case,
    pub(super) before: Plan,
    after: Plan,
    format: (WeightFormat, WeightFormat),
}

impl<'a> Hold<'a> {
    /// Refuses, before anything is written, what the checks at the end could not look at: shares that no
    /// plan cuts, experts of one layer in several element types, and biases of some alone.
    pub(super) fn before(&self, tensors: &'a Tensors) -> Result<(), PadError> {
        for experts in self.experts(tensors)? {
            let plans = self.plans(&experts, 0, None)?;
            self.layer(
                self.before,
                &experts,
                (experts.part.width.from, plans.format.0),
            )?
            .check()?;
        }
        Ok(())
    }

    /// The layer's experts in one of both checkpoints.
    fn layer<'c>(
        &self,
        checkpoint: &'c Checkpoint,
        experts: &Experts<'_>,
        (width, weight): (u64, WeightFormat),
    ) -> Result<Layer<'c>, CheckpointError> {
        let size = |n| index(n).unwrap_or(usize::MAX);
        let shape = LayerShape {
            experts: size(if experts.shared {
                1
            } else {
                self.recipe.experts
            }),
            hidden: size(experts.part.hidden),
            intermediate: size(width),
            gated: self.recipe.gated,
            interleaved: self.recipe.interleaved && !experts.shared,
            weight,
            scale: experts.scale,
            bias: experts.bias,
            shared: experts.shared,
        };
        Layer::at(checkpoint, shape, experts.place.1)
    }

    /// Looks at some experts of every layer, a draft's and shared ones too.
    pub(super) fn audit(&self, tensors: &'a Tensors) -> Result<AuditNote, PadError> {
        let mut note = AuditNote {
            layers: 0,
            shared: 0,
            experts: (count(self.sample(false).len()), self.recipe.experts),
            checked_bytes: 0,
            elements: 0,
            pads: 0,
            differing: 0,
            part: String::new(),
        };
        for experts in self.experts(tensors)? {
            let look = self.look(&experts, 0)?;
            match experts.shared {
                true => note.shared += 1,
                false => note.layers += 1,
            }
            let plans = [&look.plans.before, &look.plans.after];
            let [padded, whole] = plans.map(|plan| match experts.scale {
                Some(dtype) => plan.clone().with_scales_of(dtype),
                None => plan.clone(),
            });
            for e in self.sample(experts.shared) {
                let packed = pack(&whole, &input(look.after(e)?, 0))?;
                let wanted = input(look.before(e)?, 0);
                let found = audit(&padded, &wanted, &packed).map_err(wrong)?;
                note.checked_bytes += found.checked_bytes;
                note.elements += found.elements;
                note.pads += found.pads;
                note.differing += found.differing;
                if let Some(first) = found.first.first() {
                    let part = look.part.told();
                    let of = if part.is_empty() { "" } else { ", of " };
                    return Err(wrong(format!("{}{of}{part}: {first}", experts.named(e))));
                }
            }
            if note.part.is_empty() {
                note.part = look.part.told();
            }
        }
        Ok(note)
    }

    /// Computes experts of the first and the last layer from padded bytes, and from unpadded ones: of the
    /// model's layers, of a draft's, and of shared experts of both.
    pub(super) fn differential(
        &self,
        tensors: &'a Tensors,
    ) -> Result<Vec<DifferentialNote>, PadError> {
        let mut kinds: BTreeMap<(bool, bool), Vec<Experts<'_>>> = BTreeMap::new();
        for experts in self.experts(tensors)? {
            let draft = matches!(experts.place.0, Some(LayerId::Draft(_)));
            kinds
                .entry((draft, experts.shared))
                .or_default()
                .push(experts);
        }
        let mut notes = Vec::new();
        for mut layers in kinds.into_values() {
            if layers.len() > 2 {
                layers.drain(1..layers.len() - 1);
            }
            for experts in &layers {
                notes.extend(self.outputs(experts)?);
            }
        }
        Ok(notes)
    }

    /// The outputs of one expert, of another where those of the first prove nothing.
    fn outputs(&self, experts: &Experts<'_>) -> Result<Option<DifferentialNote>, PadError> {
        let look = self.look(experts, TOKENS)?;
        let mut found = None;
        // One NaN can hide an expert: another one is looked at then.
        for e in self.sample(experts.shared) {
            let held = |logical| input(computed(logical, experts.scale), TOKENS);
            let packed = pack(&look.plans.after, &held(look.after(e)?))?;
            let logical = held(look.before(e)?);
            let mut note = compared(&look.plans, (experts.place.1, e), &logical, &packed)?;
            if look.part.hidden().is_some() {
                note.verdict += &format!("; of {}", look.part.told());
            }
            if experts.scale.is_some() {
                note.verdict += "; scales rounded to bf16";
            }
            let vacuous = note.proves_nothing();
            found = Some(note);
            if !vacuous {
                break;
            }
        }
        Ok(found)
    }

    /// The first expert, the last, and one between; shared ones are one.
    fn sample(&self, shared: bool) -> Vec<usize> {
        let all = match shared {
            true => 1,
            false => index(self.recipe.experts).unwrap_or(usize::MAX),
        };
        let mut some = vec![0, all / 2, all.saturating_sub(1)];
        some.dedup();
        some
    }

    /// The layers with experts, in order, and how these are stored: of shared ones where they change.
    fn experts(&self, tensors: &'a Tensors) -> Result<Vec<Experts<'a>>, PadError> {
        let treat = Treat::new(self.recipe, tensors);
        let mut all = Vec::new();
        for ((shared, place), format) in treat.experts() {
            let part = match shared {
                false => Some(&self.recipe.routed),
                true => self.recipe.shared.as_ref().filter(|part| part.changes()),
            };
            let Some(part) = part else { continue };
            let mut experts = Experts {
                place,
                shared,
                format,
                scale: None,
                bias: false,
                part,
            };
            let plain = self.layer(self.before, &experts, (part.width.from, format))?;
            experts.scale = plain.stored_scale()?;
            experts.bias = plain.bias().is_some() || !shared && self.model.bias == Bias::Both;
            all.push(experts);
        }
        Ok(all)
    }

    /// A layer's experts in both checkpoints, and what of each is looked at.
    fn look<'l>(&'l self, experts: &'l Experts<'a>, tokens: u64) -> Result<Look<'l>, PadError> {
        let whole = self.plans(experts, 0, None)?;
        let part = Sample::within(&whole.before, WHOLE_MAX, PART_BYTES).map_err(wrong)?;
        let width = &experts.part.width;
        let format = whole.format;
        Ok(Look {
            before: self.layer(self.before, experts, (width.from, format.0))?,
            after: self.layer(self.after, experts, (width.to, format.1))?,
            plans: self.plans(experts, tokens, part.hidden())?,
            gated: self.recipe.gated,
            whole,
            part,
            experts,
        })
    }

    /// The plans that cut the axis as the recipe does, of so many hidden units.
    fn plans(
        &self,
        experts: &Experts<'_>,
        tokens: u64,
        hidden: Option<u64>,
    ) -> Result<Plans, PadError> {
        let (part, format) = (experts.part, experts.format);
        let width = &part.width;
        let scheme = |intermediate, split| PadSpec {
            intermediate,
            split,
            ..PadSpec::default()
        };
        let finer = match format == part.format {
            true => part.format_now(),
            false => format,
        };
        let case = Case {
            t: tokens,
            e: 1,
            k: 1,
            h: hidden.unwrap_or(part.hidden),
            i: width.from,
            tp: self.recipe.tp,
            act: self.model.activation,
            route: Route::Given,
            w: finer,
            bias: match experts.bias {
                true => Bias::Both,
                false => Bias::None,
            },
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
                return Ok(Plans {
                    case,
                    before,
                    after,
                    format,
                });
            }
        }
        Err(PadError::Refused(format!(
            "no plan cuts {} channels into {} shares of {} as this rule does, so that the result could not be audited; nothing was written",
            width.from, self.recipe.tp, width.slot
        )))
    }
}

/// Experts of one layer before and after, and how they are looked at.
struct Look<'l> {
    experts: &'l Experts<'l>,
    before: Layer<'l>,
    after: Layer<'l>,
    /// The plans of all of the layer, and of the part that is looked at.
    whole: Plans,
    plans: Plans,
    part: Sample,
    gated: bool,
}

impl Look<'_> {
    /// One expert of the input, on the grid that its scales are repeated on.
    fn before(&self, e: usize) -> Result<Logical, CheckpointError> {
        self.read(&self.before, &self.whole.before, e, |role, tensor| {
            self.refined(role, tensor)
        })
    }

    /// The same one of the output.
    fn after(&self, e: usize) -> Result<Logical, CheckpointError> {
        self.read(&self.after, &self.whole.after, e, |_, tensor| tensor)
    }

    /// One expert, tensor by tensor where only a part of each is kept.
    fn read(
        &self,
        layer: &Layer<'_>,
        plan: &Plan,
        e: usize,
        change: impl Fn(Role, Tensor) -> Tensor,
    ) -> Result<Logical, CheckpointError> {
        let cut = self.part.hidden().is_some();
        layer.logical(|role| {
            let tensor = layer.role(role, e..e + 1, cut)?;
            let tensor = tensor.map(|tensor| change(role, tensor));
            Ok(match cut {
                true => tensor.map(|tensor| self.part.narrow(plan, role, &tensor)),
                false => tensor,
            })
        })
    }

    /// Scales repeated on the recipe's grid, where that is finer.
    fn refined(&self, role: Role, scales: Tensor) -> Tensor {
        let part = self.experts.part;
        let Some(blocks) = part.blocks else {
            return scales;
        };
        let (hidden, width) = (part.hidden, part.width.from);
        let (halves, rows, cols) = match role {
            Role::W13Scale => (if self.gated { 2 } else { 1 }, width, hidden),
            Role::W2Scale => (1, hidden, width),
            _ => return scales,
        };
        // Groups are along a row: each row keeps its own.
        let along_rows = match part.groups() {
            true => Blocks { from: 1, to: 1 },
            false => blocks,
        };
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
        new
    }
}

impl Experts<'_> {
    /// What the names of one of them begin with.
    fn named(&self, e: usize) -> String {
        match self.shared {
            true => self.place.1.trim_end_matches('.').to_owned(),
            false => format!("{}{e}", self.place.1),
        }
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

pub(super) fn pack(plan: &Plan, logical: &Logical) -> Result<PackedInputs, PadError> {
    pack_layer(plan, logical).map_err(wrong)
}

/// The result does not hold: nothing is put in its place.
pub(super) fn wrong(why: impl std::fmt::Display) -> PadError {
    PadError::Refused(format!("the padded tensors do not hold: {why}"))
}

pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

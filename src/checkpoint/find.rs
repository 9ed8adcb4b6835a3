//! Finds the tensors of one layer by their names (facts/peers.md 5, "Checkpoint names").
//!
//! It must not read data. Layer 4.

use super::error::{CheckpointError, shown};
use super::place::{LayerId, Place, chosen, layer_of, place_of};
use super::set::Checkpoint;
use std::collections::BTreeSet;

/// Names of the projections, first ones then second, by family: with a gate, without, and fused.
type Names = (&'static [&'static str], &'static str);
pub(super) const GATED: &[Names] = &[
    (&["gate_proj", "up_proj"], "down_proj"),
    (&["w1", "w3"], "w2"),
    (&["fc1", "fc3"], "fc2"),
];
pub(super) const UNGATED: &[Names] = &[
    (&["up_proj"], "down_proj"),
    (&["w1"], "w2"),
    (&["fc1"], "fc2"),
];
pub(super) const FUSED: &[Names] = &[(&["gate_up_proj"], "down_proj"), (&["w13"], "w2")];
pub(super) const FUSED_UNGATED: &[Names] = &[(&["up_proj"], "down_proj"), (&["w13"], "w2")];

/// What a tensor beside a projection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The weight.
    Weight,
    /// Its scales.
    Scale,
    /// A second-level scale.
    Global,
    /// The bias.
    Bias,
}

impl Kind {
    /// What follows a projection's name, in a tensor of one expert and in one of all experts.
    pub(crate) fn suffixes(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Kind::Weight => (
                &[".weight", ".weight_packed"],
                &[
                    "",
                    "_weight",
                    ".weight",
                    "_blocks",
                    "_packed",
                    "_weight_packed",
                ],
            ),
            Kind::Scale => (
                &[".weight_scale_inv", ".weight_scale", ".scale"],
                &[
                    "_scale",
                    "_scales",
                    "_scale_inv",
                    "_weight_scale",
                    "_weight_scale_inv",
                    ".weight_scale",
                    ".weight_scale_inv",
                ],
            ),
            Kind::Global => (
                &[".weight_scale_2", DIVISOR],
                &[
                    "_scale_2",
                    "_weight_scale_2",
                    ".weight_scale_2",
                    DIVISOR_FUSED,
                ],
            ),
            Kind::Bias => (&[".bias"], &["_bias", ".bias"]),
        }
    }
}

/// compressed-tensors divides by its second-level scale; all others multiply.
const DIVISOR: &str = ".weight_global_scale";
const DIVISOR_FUSED: &str = "_weight_global_scale";

/// Where the tensors of a layer's experts are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Family {
    /// What every name begins with.
    pub(super) prefix: String,
    /// The layer, if names say one.
    pub(super) layer: Option<LayerId>,
    /// Whether a tensor holds all experts.
    pub(super) fused: bool,
    /// Whether there is one expert, without a number: shared ones, side by side.
    pub(super) alone: bool,
    /// First projections: gate and up, one of both, or the only one.
    pub(super) first: &'static [&'static str],
    /// Second projection.
    pub(super) second: &'static str,
}

impl Family {
    /// A tensor's name; `expert` says whose where tensors hold one expert.
    pub(super) fn name(&self, projection: &str, suffix: &str, expert: usize) -> String {
        match self.fused || self.alone {
            true => format!("{}{projection}{suffix}", self.prefix),
            false => format!("{}{expert}.{projection}{suffix}", self.prefix),
        }
    }

    /// The suffix under which a kind of tensor lies beside a projection, and whether it divides.
    pub(super) fn suffix(
        &self,
        checkpoint: &Checkpoint,
        projection: &str,
        kind: Kind,
    ) -> Result<(&'static str, bool), CheckpointError> {
        let (each, fused) = kind.suffixes();
        let all = if self.fused { fused } else { each };
        let found = all
            .iter()
            .find(|suffix| checkpoint.has(&self.name(projection, suffix, 0)));
        match found {
            Some(&suffix) => Ok((suffix, suffix == DIVISOR || suffix == DIVISOR_FUSED)),
            None => Err(CheckpointError::NoTensor {
                place: checkpoint.place().to_owned(),
                tensor: shown(&self.name(projection, all[0], 0)),
            }),
        }
    }
}

/// The prefix of a name up to and with `experts.`, if it has one.
pub(super) fn prefix_of(name: &str) -> Option<&str> {
    let at = match name.rfind(".experts.") {
        Some(at) => at + 1,
        None if name.starts_with("experts.") => 0,
        None => return None,
    };
    Some(&name[..at + "experts.".len()])
}

/// Whether a tensor of that name changes what the codes beside it stand for: zero points, and indices
/// of permuted groups, under the names of AWQ, GPTQ, compressed-tensors and engines.
pub fn changes_meaning(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let words = [
        "zero_point",
        "zero_points",
        "qzeros",
        "zeros",
        "zp",
        "g_idx",
        "g_idx_sort_indices",
    ];
    words.iter().any(|word| {
        let stem = last.strip_suffix(word);
        stem.is_some_and(|stem| stem.is_empty() || stem.ends_with('_'))
    })
}

/// The prefixes of the experts of `layer`, or of the first layer that has any; one, where a checkpoint holds
/// one model.
pub(super) fn experts_at(
    checkpoint: &Checkpoint,
    layer: Option<LayerId>,
) -> Result<Vec<&str>, CheckpointError> {
    let names = checkpoint.names().filter_map(prefix_of);
    let mut places: BTreeSet<Place<'_>> = names.map(place_of).collect();
    // What was handed over by hand has no prefix, or says that it is the state before.
    for prefix in ["", "before."] {
        if checkpoint
            .names()
            .any(|n| n.starts_with(&format!("{prefix}w13")))
        {
            places.insert((None, prefix));
        }
    }
    let found = chosen(&places, layer);
    if !found.is_empty() {
        return Ok(found);
    }
    let numbers: Vec<LayerId> = places.iter().filter_map(|(at, _)| *at).collect();
    Err(no_layer(
        checkpoint,
        match (layer, numbers.as_slice()) {
            (Some(layer), [first, .., last]) => {
                format!("no experts in layer {layer}; layers {first} to {last} have some")
            }
            (Some(layer), [only]) => format!("no experts in layer {layer}; layer {only} has some"),
            _ => "no tensor's name has `experts.` or `w13` in it".to_owned(),
        },
    ))
}

/// The family whose names the experts below a prefix have.
pub(super) fn family(
    checkpoint: &Checkpoint,
    gated: bool,
    prefix: &str,
) -> Result<Family, CheckpointError> {
    let of = |fused, &(first, second): &Names| Family {
        prefix: prefix.to_owned(),
        layer: layer_of(prefix),
        fused,
        alone: false,
        first,
        second,
    };
    let (each, all) = match gated {
        true => (GATED, FUSED),
        false => (UNGATED, FUSED_UNGATED),
    };
    let candidates = each.iter().map(|names| of(false, names));
    let candidates = candidates.chain(all.iter().map(|names| of(true, names)));
    if let Some(family) = whole(checkpoint, candidates) {
        return Ok(family);
    }
    let own = || checkpoint.names().filter(|n| n.starts_with(prefix));
    if let Some(packed) = own().find(|n| n.ends_with(".qweight")) {
        // With zero points or groups beside it that nothing here reads.
        return Err(no_layer(
            checkpoint,
            format!(
                "the experts of `{}` are stored as AWQ and GPTQ store them (`{}`, with qzeros and g_idx), which is not read",
                shown(prefix),
                shown(packed),
            ),
        ));
    }
    let example = own().next();
    Err(no_layer(
        checkpoint,
        format!(
            "the experts of `{}` are named as in no known family of {} layers, for example `{}`",
            shown(prefix),
            if gated { "gated" } else { "non-gated" },
            shown(example.unwrap_or_default()),
        ),
    ))
}

/// The first family of which every projection's weight is there.
fn whole(checkpoint: &Checkpoint, families: impl Iterator<Item = Family>) -> Option<Family> {
    let mut families = families;
    families.find(|family| {
        let mut projections = family.first.iter().chain([&family.second]);
        projections.all(|p| family.suffix(checkpoint, p, Kind::Weight).is_ok())
    })
}

fn no_layer(checkpoint: &Checkpoint, why: String) -> CheckpointError {
    CheckpointError::NoLayer {
        place: checkpoint.place().to_owned(),
        why,
    }
}

/// The prefixes of the shared experts of `layer`, or of the first layer that has any.
pub(super) fn shared_at(
    checkpoint: &Checkpoint,
    gated: bool,
    layer: Option<LayerId>,
) -> Result<Vec<&str>, CheckpointError> {
    let below = |name| super::names::named(name, gated).filter(|named| named.shared);
    let named = checkpoint.names().filter_map(below);
    let places: BTreeSet<Place<'_>> = named.map(|named| place_of(named.prefix)).collect();
    let found = chosen(&places, layer);
    if !found.is_empty() {
        return Ok(found);
    }
    Err(no_layer(
        checkpoint,
        match layer {
            Some(layer) => format!("no shared experts in layer {layer}"),
            None => {
                let words = super::names::SHARED.map(|word| format!("`{word}`"));
                format!("no tensor's name has {} in it", words.join(" or "))
            }
        },
    ))
}

/// The family whose names the shared experts below a prefix have.
pub(super) fn shared_family(
    checkpoint: &Checkpoint,
    gated: bool,
    prefix: &str,
) -> Result<Family, CheckpointError> {
    let tables = if gated { GATED } else { UNGATED };
    let families = tables.iter().map(|&(first, second)| Family {
        prefix: prefix.to_owned(),
        layer: layer_of(prefix),
        fused: false,
        alone: true,
        first,
        second,
    });
    whole(checkpoint, families).ok_or_else(|| {
        let why = format!(
            "the shared experts of `{}` are named as in no known family",
            shown(prefix)
        );
        no_layer(checkpoint, why)
    })
}

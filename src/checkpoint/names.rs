//! Says what a tensor is by its name alone (facts/peers.md 5, "Checkpoint names").
//!
//! It must not look at shapes. Layer 4.

use super::find::{FUSED, FUSED_UNGATED, GATED, Kind, UNGATED, prefix_of};
use super::place::number;
use super::set::Checkpoint;

/// Which of a layer's rows a tensor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// One half of the first projection, or all of one that has no halves.
    First,
    /// Both halves of the first projection.
    Both,
    /// The second projection.
    Second,
}

/// What the name of an expert's tensor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    /// What the names of its layer's experts begin with.
    pub prefix: &'a str,
    /// The name without what says the kind.
    pub stem: &'a str,
    /// Whether it belongs to shared experts.
    pub shared: bool,
    /// Whether it holds all routed experts.
    pub fused: bool,
    /// The projection and kind; none where no family has such a tensor.
    pub is: Option<(Rows, Kind)>,
}

const KINDS: [Kind; 4] = [Kind::Weight, Kind::Scale, Kind::Global, Kind::Bias];
/// What names of shared experts have in place of `experts.` and a number; the last two in Hunyuan and Step.
pub(super) const SHARED: [&str; 4] = [
    "shared_experts.",
    "shared_expert.",
    "shared_mlp.",
    "share_expert.",
];

/// What the name says where it lies below experts, routed or shared.
pub fn named(name: &str, gated: bool) -> Option<Named<'_>> {
    if let Some(prefix) = prefix_of(name) {
        let rest = &name[prefix.len()..];
        let number = rest
            .split_once('.')
            .filter(|(n, _)| number::<usize>(n).is_some());
        let (projection, fused) = match number {
            Some((_, projection)) => (projection, false),
            None => (rest, true),
        };
        return Some(of(name, prefix, projection, (false, fused), gated));
    }
    let (prefix, projection) = SHARED.iter().find_map(|word| {
        let at = name.rfind(word)?;
        let whole = at == 0 || name[..at].ends_with('.');
        whole.then(|| name.split_at(at + word.len()))
    })?;
    Some(of(name, prefix, projection, (true, false), gated))
}

fn of<'a>(
    name: &'a str,
    prefix: &'a str,
    projection: &str,
    (shared, fused): (bool, bool),
    gated: bool,
) -> Named<'a> {
    let tables = match (gated, fused) {
        (true, false) => GATED,
        (false, false) => UNGATED,
        (true, true) => FUSED,
        (false, true) => FUSED_UNGATED,
    };
    let both = gated && fused;
    let mut stem = name;
    let mut is = None;
    for (first, second) in tables {
        let firsts = first
            .iter()
            .map(|p| (*p, if both { Rows::Both } else { Rows::First }));
        for (word, rows) in firsts.chain([(*second, Rows::Second)]) {
            let Some(suffix) = projection.strip_prefix(word) else {
                continue;
            };
            let found = KINDS.into_iter().find(|kind| {
                let (each, all) = kind.suffixes();
                (if fused { all } else { each }).contains(&suffix)
            });
            if let Some(kind) = found {
                stem = &name[..name.len() - suffix.len()];
                is = Some((rows, kind));
            }
        }
    }
    Named {
        prefix,
        stem,
        shared,
        fused,
        is,
    }
}

impl Named<'_> {
    /// Whether a tensor of a kind lies beside this one, by `has`.
    pub fn beside(&self, kind: Kind, has: impl Fn(&str) -> bool) -> bool {
        let (each, all) = kind.suffixes();
        let suffixes = if self.fused { all } else { each };
        suffixes
            .iter()
            .any(|suffix| has(&format!("{}{suffix}", self.stem)))
    }
}

impl Checkpoint {
    /// What the names of each layer's routed experts begin with, in order.
    pub fn prefixes(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.names().filter_map(prefix_of).collect();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_layer_projection_and_kind() {
        let told = |name, gated| {
            let n = named(name, gated)?;
            Some((n.prefix, n.stem, n.shared, n.fused, n.is))
        };
        let is = |rows, kind| Some((rows, kind));
        assert_eq!(
            told("m.layers.3.mlp.experts.12.up_proj.weight_scale_inv", true),
            Some((
                "m.layers.3.mlp.experts.",
                "m.layers.3.mlp.experts.12.up_proj",
                false,
                false,
                is(Rows::First, Kind::Scale)
            ))
        );
        assert_eq!(
            told("p.experts.gate_up_proj_blocks", true),
            Some((
                "p.experts.",
                "p.experts.gate_up_proj",
                false,
                true,
                is(Rows::Both, Kind::Weight)
            ))
        );
        assert_eq!(
            told("p.experts.w13_weight", true).and_then(|t| t.4),
            is(Rows::Both, Kind::Weight)
        );
        assert_eq!(
            told("p.experts.up_proj", false).and_then(|t| t.4),
            is(Rows::First, Kind::Weight)
        );
        assert_eq!(
            told("p.mlp.shared_experts.down_proj.bias", true),
            Some((
                "p.mlp.shared_experts.",
                "p.mlp.shared_experts.down_proj",
                true,
                false,
                is(Rows::Second, Kind::Bias)
            ))
        );
        assert_eq!(told("p.experts.0.w1.g_idx", true).map(|t| t.4), Some(None));
        for other in [
            "p.mlp.gate.weight",
            "p.mlp.shared_expert_gate.weight",
            "lm_head.weight",
        ] {
            assert_eq!(told(other, true), None, "{other}");
        }
    }
}

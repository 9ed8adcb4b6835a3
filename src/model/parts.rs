//! Names the parts of a model that have a format of their own, and their modules.
//!
//! It must not know formats. Layer 2.

use super::family::Family;
use super::layers::Layers;

/// One of the three parts that have a format of their own.
pub(super) struct Part<'a> {
    pub(super) word: &'static str,
    pub(super) layers: &'a [u64],
    pub(super) tails: Vec<String>,
    pub(super) routed: bool,
    /// Whether the model has such a part.
    pub(super) exists: bool,
}

/// Names of a part's modules behind `layers.N.`, in the spellings that checkpoints use.
pub(super) fn parts<'a>(family: &Family, layers: &'a Layers, has_shared: bool) -> [Part<'a>; 3] {
    let home = family.home;
    let tails = |names: &[&str]| {
        names
            .iter()
            .map(|n| format!("{home}.{n}"))
            .collect::<Vec<_>>()
    };
    let mut routed = tails(&["experts.0.down_proj"]);
    routed.push("experts.0.down_proj".to_owned());
    let mut shared = tails(&[
        "shared_experts.down_proj",
        "shared_expert.down_proj",
        "shared_mlp.down_proj",
    ]);
    shared.extend(["shared_experts.down_proj", "share_expert.down_proj"].map(str::to_owned));
    let dense = match home {
        "mixer" | "feed_forward" | "ffn" => tails(&["down_proj"]),
        _ => vec!["mlp.down_proj".to_owned()],
    };
    let beside = if layers.dense.is_empty() {
        &layers.moe
    } else {
        &layers.dense
    };
    [
        Part {
            word: "routed experts",
            layers: &layers.moe,
            tails: routed,
            routed: true,
            exists: true,
        },
        Part {
            word: "shared experts",
            layers: &layers.moe,
            tails: shared,
            routed: false,
            exists: has_shared,
        },
        Part {
            word: "dense MLPs",
            layers: beside,
            tails: dense,
            routed: false,
            exists: !layers.dense.is_empty(),
        },
    ]
}

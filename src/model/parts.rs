//! Names the parts of a model that have a format of their own, and their modules.
//!
//! It must not know formats. Layer 2.

use super::family::Family;
use super::layers::Layers;

/// One of the three parts that have a format of their own.
pub(super) struct Part<'a> {
    pub(super) word: &'static str,
    pub(super) layers: &'a [u64],
    /// Of the second projection; of routed experts the first one's.
    pub(super) tails: Vec<String>,
    /// The same of the first projection.
    pub(super) first: Vec<String>,
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
    let mut routed = tails(&["experts.0.down_proj", "experts.0.w2", "experts.down_proj"]);
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
            first: first(&routed),
            tails: routed,
            routed: true,
            exists: true,
        },
        Part {
            word: "shared experts",
            layers: &layers.moe,
            first: first(&shared),
            tails: shared,
            routed: false,
            exists: has_shared,
        },
        Part {
            word: "dense MLPs",
            layers: beside,
            first: first(&dense),
            tails: dense,
            routed: false,
            exists: !layers.dense.is_empty(),
        },
    ]
}

/// The names of the first projections beside those of second ones: of the up projection, which all experts have.
fn first(tails: &[String]) -> Vec<String> {
    let up = |tail: &String| match tail.strip_suffix("w2") {
        Some(stem) => format!("{stem}w3"),
        // Fused tensors of all experts, not those of shared ones.
        None if tail.rsplit('.').nth(1) == Some("experts") => {
            tail.replace("down_proj", "gate_up_proj")
        }
        None => tail.replace("down_proj", "up_proj"),
    };
    tails.iter().map(up).collect()
}

/// Names of the modules of another expert than the first.
pub(super) fn of_expert(tails: &[String], n: u64) -> Vec<String> {
    let renamed = tails
        .iter()
        .map(|tail| tail.replace("experts.0.", &format!("experts.{n}.")));
    renamed.collect()
}

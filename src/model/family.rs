//! Holds, as one table, what a family's code does where its config keys are silent or mislead.
//!
//! It must not read a config. Layer 2. Families not listed are read by their keys alone.
//! Sources: facts/upstream-padding.md 2.3 and 4.1 (routers, widths, activations),
//! facts/peers.md 5 (where the experts live in a checkpoint).

use crate::terms::{Activation, Route};

/// How logits are turned into scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Score {
    Softmax,
    Sigmoid,
    SqrtSoftplus,
}

/// What a family does when its config does not say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    /// `model_type` values, without a trailing `_text`.
    pub(super) types: &'static [&'static str],
    /// Beginnings of the architecture's name, for configs without a `model_type`.
    pub(super) classes: &'static [&'static str],
    /// Whether `intermediate_size` is the expert's width when no key of its own says it.
    pub(super) wide: bool,
    /// The activation when no key says it.
    pub(super) activation: Option<Activation>,
    /// Whether `activation` holds whatever `hidden_act` says.
    pub(super) fixed: bool,
    /// The router, where the family has one of its own whatever the keys say.
    pub(super) route: Option<Route>,
    /// Score, where no key says it.
    pub(super) score: Score,
    /// Whether a correction bias takes part, where no key says it.
    pub(super) bias: bool,
    /// Whether weights are renormalised, where no key says it.
    pub(super) renorm: bool,
    /// The module inside a layer that holds the experts.
    pub(super) home: &'static str,
    /// Whether a shared expert of the routed width is always there.
    pub(super) shared: bool,
    /// Whether a dense MLP of `intermediate_size` runs beside the experts in every layer.
    pub(super) parallel: bool,
    /// Whether experts have biases and interleaved gate and up rows (gpt-oss).
    pub(super) oai: bool,
    /// Whether sizes may be lists with one value per layer.
    pub(super) lists: bool,
    /// Whether `intermediate_size` is the expert's width beside a key of its own too: some readers take one, some
    /// the other.
    pub(super) twice: bool,
    /// How its experts' tensors are named or lie in its checkpoints, where `checkpoint` does not read them so.
    pub(super) unread: Option<&'static str>,
    /// What the vocabulary cannot say about the router.
    pub(super) note: Option<&'static str>,
}

const PLAIN: Family = Family {
    types: &[],
    classes: &[],
    wide: false,
    activation: Some(Activation::Swiglu),
    fixed: false,
    route: None,
    score: Score::Softmax,
    bias: false,
    renorm: true,
    home: "mlp",
    shared: false,
    parallel: false,
    oai: false,
    lists: false,
    twice: false,
    unread: None,
    note: None,
};

impl Family {
    /// Why its checkpoints cannot be written with wider experts, a clause.
    pub(super) fn unpaddable(&self) -> Option<String> {
        let how = self.unread?;
        Some(format!(
            "checkpoints of its family {how}, which is not read"
        ))
    }
}

/// What holds for a family that the table does not list: nothing is guessed but the router.
pub(super) const UNKNOWN: Family = Family {
    activation: None,
    ..PLAIN
};

const SIGMOID: Family = Family {
    score: Score::Sigmoid,
    bias: true,
    ..PLAIN
};

const STEP: &str = "name all experts' tensors `moe.gate_proj`, `moe.up_proj` and `moe.down_proj`";

/// Listed families.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        types: &["nemotron_h"],
        classes: &["NemotronH"],
        activation: Some(Activation::Relu2),
        home: "mixer",
        ..SIGMOID
    },
    Family {
        types: &["qwen2_moe", "qwen3_moe"],
        classes: &["Qwen2Moe", "Qwen3Moe"],
        // The class default of norm_topk_prob is false.
        renorm: false,
        ..PLAIN
    },
    Family {
        types: &["olmoe", "flex_olmo"],
        classes: &["Olmoe", "FlexOlmo"],
        wide: true,
        renorm: false,
        ..PLAIN
    },
    Family {
        types: &[
            "qwen3_next",
            "qwen3_vl_moe",
            "qwen3_5_moe",
            "qwen3_omni_moe_thinker",
        ],
        classes: &["Qwen3Next", "Qwen3VLMoe", "Qwen3_5Moe"],
        ..PLAIN
    },
    Family {
        types: &["glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa"],
        classes: &["Glm4Moe", "GlmMoeDsa"],
        ..SIGMOID
    },
    Family {
        types: &[
            "deepseek_v3",
            "deepseek_v32",
            "kimi_k2",
            "kimi_k25",
            "kimi_linear",
            "kimi_k3",
        ],
        classes: &["DeepseekV3", "Kimi"],
        ..SIGMOID
    },
    Family {
        types: &[
            "dots1",
            "bailing_moe_v2",
            "hy_v3",
            "mimo_v2_flash",
            "mimo_v2",
            "laguna",
        ],
        classes: &["Dots1", "BailingMoeV2", "MiMoV2", "Laguna"],
        ..SIGMOID
    },
    Family {
        types: &["deepseek_v2"],
        classes: &["DeepseekV2"],
        renorm: false,
        ..PLAIN
    },
    Family {
        types: &["deepseek_v4"],
        classes: &["DeepseekV4"],
        score: Score::SqrtSoftplus,
        home: "ffn",
        ..SIGMOID
    },
    Family {
        types: &["gpt_oss", "openai_privacy_filter"],
        classes: &["GptOss"],
        wide: true,
        // Its config says silu; its code clamps, sharpens and adds one.
        activation: Some(Activation::SwigluOai),
        fixed: true,
        route: Some(Route::TopkSoftmax),
        oai: true,
        ..PLAIN
    },
    Family {
        types: &["mixtral", "minimax", "minimax_text_01", "minimax_m1"],
        classes: &[
            "Mixtral",
            "MiniMaxForCausalLM",
            "MiniMaxText01",
            "MiniMaxM1",
        ],
        wide: true,
        route: Some(Route::SoftmaxRenorm),
        home: "block_sparse_moe",
        ..PLAIN
    },
    Family {
        types: &["granitemoe", "granitemoehybrid", "granitemoeshared"],
        classes: &["GraniteMoe"],
        wide: true,
        route: Some(Route::SoftmaxRenorm),
        home: "block_sparse_moe",
        unread: Some(
            "name all experts' tensors `block_sparse_moe.input_linear` and `output_linear`",
        ),
        ..PLAIN
    },
    Family {
        types: &["minimax_m2"],
        classes: &["MiniMaxM2"],
        wide: true,
        home: "block_sparse_moe",
        ..SIGMOID
    },
    Family {
        types: &["minimax_m3", "minimax_m3_vl"],
        classes: &["MiniMaxM3"],
        wide: true,
        activation: Some(Activation::SwigluOai),
        home: "block_sparse_moe",
        ..SIGMOID
    },
    Family {
        types: &["phimoe"],
        classes: &["PhiMoE", "Phimoe"],
        wide: true,
        route: Some(Route::SparseMixer),
        home: "block_sparse_moe",
        ..PLAIN
    },
    Family {
        types: &["llama4"],
        classes: &["Llama4"],
        wide: true,
        route: Some(Route::Llama4),
        home: "feed_forward",
        shared: true,
        ..PLAIN
    },
    Family {
        types: &["jamba"],
        classes: &["Jamba"],
        wide: true,
        route: Some(Route::Softmax),
        home: "feed_forward",
        ..PLAIN
    },
    Family {
        types: &["lfm2_moe"],
        classes: &["Lfm2Moe"],
        home: "feed_forward",
        ..SIGMOID
    },
    Family {
        types: &["gemma4"],
        classes: &["Gemma4"],
        activation: Some(Activation::GegluTanh),
        route: Some(Route::SoftmaxRenorm),
        home: "moe",
        parallel: true,
        note: Some(
            "each expert has a learned scale on its router weight, which no router word says",
        ),
        ..PLAIN
    },
    Family {
        types: &["step3p5", "step3p7"],
        classes: &["Step3p5", "Step3p7"],
        activation: Some(Activation::SwigluStep),
        fixed: true,
        home: "moe",
        unread: Some(STEP),
        note: Some("only some layers clamp (a list per layer); swiglustep stands for all"),
        ..SIGMOID
    },
    Family {
        types: &["step3", "step3_vl"],
        classes: &["Step3VL", "Step3Text"],
        renorm: false,
        home: "moe",
        unread: Some(STEP),
        ..PLAIN
    },
    Family {
        types: &["grok-1", "grok-2", "grok"],
        classes: &["Grok"],
        wide: true,
        activation: Some(Activation::Geglu),
        fixed: true,
        route: Some(Route::TanhCapped),
        home: "block_sparse_moe",
        unread: Some(
            "are JAX's own files (Grok-1), or hold experts already cut over ranks (Grok-2)",
        ),
        ..PLAIN
    },
    Family {
        types: &["dbrx"],
        classes: &["Dbrx"],
        home: "ffn",
        unread: Some("hold all experts' rows in one matrix (`ffn.experts.mlp.w1`, `v1`, `w2`)"),
        ..PLAIN
    },
    Family {
        types: &["arctic"],
        classes: &["Arctic"],
        wide: true,
        home: "block_sparse_moe",
        ..PLAIN
    },
    Family {
        types: &["ernie4_5_moe", "ernie4_5_vl_moe"],
        classes: &["Ernie4_5_Moe", "Ernie4_5Moe"],
        bias: true,
        ..PLAIN
    },
    Family {
        types: &["longcat_flash"],
        classes: &["LongcatFlash"],
        bias: true,
        renorm: false,
        parallel: true,
        note: Some("of the two dense MLPs beside the experts of each layer one is counted"),
        ..PLAIN
    },
    Family {
        types: &["hunyuan", "hunyuan_v1_moe", "hunyuan_moe"],
        classes: &["HunYuanMoE", "HunYuanForCausalLM"],
        wide: true,
        lists: true,
        twice: true,
        ..PLAIN
    },
];

/// The family of a config: by `model_type` first, then by architecture.
pub(super) fn find(types: &[&str], architectures: &[&str]) -> Family {
    let typed = types.iter().find_map(|t| {
        let t = t.strip_suffix("_text").unwrap_or(t);
        FAMILIES.iter().find(|f| f.types.contains(&t))
    });
    let classed = || {
        architectures.iter().find_map(|a| {
            FAMILIES
                .iter()
                .find(|f| f.classes.iter().any(|c| a.starts_with(c)))
        })
    };
    *typed.or_else(classed).unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_model_type_is_listed_twice() {
        let mut types: Vec<_> = FAMILIES.iter().flat_map(|f| f.types).collect();
        let all = types.len();
        types.sort();
        types.dedup();
        assert_eq!(types.len(), all);
    }

    #[test]
    fn the_text_part_of_a_model_belongs_to_its_family() {
        assert_eq!(find(&["llama4_text"], &[]).route, Some(Route::Llama4));
        assert!(find(&[""], &["GptOssForCausalLM"]).oai);
        assert!(find(&["new"], &["NewForCausalLM"]).activation.is_none());
    }
}

//! Goal: a checkpoint that advice says to pad is one that `pad` takes, by its names and its config, and what `pad`
//! refuses for these is not advised.
//! Method: small checkpoints in the names of every family that a shipped model is of; the advice is asked from the
//! config alone, and each request in it is made of the files.

use crate::checkpoint::invent::{Family, Invented, MIXTRAL, QWEN, UNGATED, before, made};
use crate::checkpoint::scene::{Asked, pad_with};
use padproof::model::{builtin, load_each};
use padproof::pad::Outcome;
use padproof::plan::Parallel;
use padproof::rule::Rules;
use padproof::run::{PadAs, Query, Way, survey};
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const H: usize = 128;
const I: usize = 320;
const E: usize = 4;
const TP: u64 = 4;
const GATED: &str = "e=4,h=128,i=320,w=bf16,fill=wild";

/// How checkpoints of some families name experts, and how their configs give widths.
struct Names {
    types: &'static [&'static str],
    /// What stands before `experts.`.
    prefix: &'static str,
    family: Family,
    line: &'static str,
    /// Shared experts: what their names have in place of `experts.N.`, and the config's keys.
    shared: Option<(&'static str, &'static [(&'static str, u64)])>,
    /// Whether `intermediate_size` is the experts' width.
    wide: bool,
}

const PLAIN: Names = Names {
    types: &[],
    prefix: "model.layers.0.mlp.",
    family: QWEN,
    line: GATED,
    shared: None,
    wide: false,
};
const ONE: &[(&str, u64)] = &[("n_shared_experts", 1)];
const TOTAL: &[(&str, u64)] = &[("shared_expert_intermediate_size", I as u64)];

const READ: &[Names] = &[
    Names {
        types: &[
            "qwen3_moe",
            "olmoe",
            "longcat_flash",
            "mellum",
            "mimo_v2_flash",
        ],
        ..PLAIN
    },
    Names {
        types: &[
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "kimi_k2",
            "glm4_moe",
            "glm4_moe_lite",
            "glm_moe_dsa",
            "dots1",
            "bailing_moe_v2",
            "ernie4_5_moe",
            "laguna",
            "inkling",
            "k2_horizon",
        ],
        shared: Some(("shared_experts", ONE)),
        ..PLAIN
    },
    Names {
        types: &["qwen2_moe", "qwen3_next", "qwen3_5_moe"],
        shared: Some(("shared_expert", TOTAL)),
        ..PLAIN
    },
    Names {
        types: &["hunyuan", "hunyuan_v1_moe", "hy_v3"],
        shared: Some(("shared_mlp", &[("num_shared_expert", 1)])),
        ..PLAIN
    },
    Names {
        types: &[
            "mixtral",
            "minimax_m2",
            "minimax_text_01",
            "phimoe",
            "arctic",
        ],
        prefix: "model.layers.0.block_sparse_moe.",
        family: MIXTRAL,
        wide: true,
        ..PLAIN
    },
    Names {
        types: &["minimax_m3", "minimax_m3_vl", "kimi_k3", "kimi_linear"],
        prefix: "model.layers.0.block_sparse_moe.",
        family: MIXTRAL,
        shared: Some(("shared_experts", ONE)),
        ..PLAIN
    },
    Names {
        types: &["deepseek_v4"],
        prefix: "layers.0.ffn.",
        family: MIXTRAL,
        shared: Some(("shared_experts", ONE)),
        ..PLAIN
    },
    Names {
        types: &["lfm2_moe"],
        prefix: "model.layers.0.feed_forward.",
        family: MIXTRAL,
        ..PLAIN
    },
    Names {
        types: &["nemotron_h"],
        prefix: "backbone.layers.0.mixer.",
        family: Family::Each(["none", "up_proj", "down_proj"]),
        line: "e=4,h=128,i=320,act=relu2,w=bf16,fill=wild",
        shared: Some((
            "shared_experts",
            &[
                ("n_shared_experts", 1),
                ("moe_shared_expert_intermediate_size", I as u64),
            ],
        )),
        ..PLAIN
    },
    Names {
        types: &["gemma4"],
        prefix: "model.layers.0.",
        family: Family::Fused,
        ..PLAIN
    },
    Names {
        types: &["qwen3_vl_moe"],
        family: Family::Transposed,
        ..PLAIN
    },
    Names {
        types: &["llama4"],
        prefix: "model.layers.0.feed_forward.",
        family: Family::Transposed,
        shared: Some(("shared_expert", &[])),
        wide: true,
        ..PLAIN
    },
    Names {
        types: &["gpt_oss", "openai_privacy_filter"],
        family: Family::GptOss,
        line: "e=4,h=128,i=320,act=swigluoai,w=mxfp4,bias=both,order=int1,fill=wild",
        wide: true,
        ..PLAIN
    },
];

/// Tensors of all experts that no family in `checkpoint` names, and the config's own keys.
struct Odd {
    types: &'static [&'static str],
    tensors: &'static [(&'static str, &'static [usize])],
    keys: &'static str,
}

const STEP: &[(&str, &[usize])] = &[
    ("model.layers.0.moe.gate_proj.weight", &[E, I, H]),
    ("model.layers.0.moe.up_proj.weight", &[E, I, H]),
    ("model.layers.0.moe.down_proj.weight", &[E, H, I]),
];
const UNREAD: &[Odd] = &[
    Odd {
        types: &["dbrx"],
        tensors: &[
            ("transformer.blocks.0.ffn.experts.mlp.w1", &[E * I, H]),
            ("transformer.blocks.0.ffn.experts.mlp.v1", &[E * I, H]),
            ("transformer.blocks.0.ffn.experts.mlp.w2", &[E * I, H]),
        ],
        keys: r#"{"ffn_config": {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 320}, "d_model": 128, "n_layers": 1}"#,
    },
    Odd {
        types: &["granitemoe", "granitemoehybrid", "granitemoeshared"],
        tensors: &[
            (
                "model.layers.0.block_sparse_moe.input_linear.weight",
                &[E, 2 * I, H],
            ),
            (
                "model.layers.0.block_sparse_moe.output_linear.weight",
                &[E, H, I],
            ),
        ],
        keys: r#"{"intermediate_size": 320}"#,
    },
    Odd {
        types: &["step3", "step3_vl", "step3p5", "step3p7"],
        tensors: STEP,
        keys: r#"{"moe_intermediate_size": 320}"#,
    },
    Odd {
        types: &["grok-1", "grok-2"],
        tensors: &[],
        keys: r#"{"intermediate_size": 320}"#,
    },
];

fn config(model_type: &str, more: &Value) -> Value {
    let mut config = json!({
        "model_type": model_type, "hidden_size": H, "num_hidden_layers": 1, "num_experts": E, "num_experts_per_tok": 2,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512, "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn written(config: &Value, file: &Invented) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("config.json"), config.to_string()).unwrap();
    std::fs::write(path("model.safetensors"), file.bytes()).unwrap();
    folder
}

/// Every request to pad that advice about the config holds.
fn advised(folder: &Path) -> Vec<PadAs> {
    let query = Query {
        all: false,
        advice: true,
        ..Query::of(Parallel { tp: TP, ep: 1 })
    };
    let models = load_each(&folder.to_string_lossy()).unwrap();
    let mut found: Vec<PadAs> = Vec::new();
    for model in &models {
        let told = survey(model, Rules::builtin(), &query).unwrap();
        let ways = told.advice.rules.iter().flat_map(|rule| &rule.instead);
        for pad in ways
            .filter(|way| way.way == Way::PadOffline)
            .filter_map(|way| way.pad)
        {
            if !found.contains(&pad) {
                found.push(pad);
            }
        }
    }
    found
}

fn padded(folder: &Path, pad: PadAs) -> Result<(), String> {
    let keep = tempfile::tempdir().unwrap();
    let (tp, align) = (pad.tp, pad.align);
    let done = pad_with(
        folder,
        &keep.path().join("out"),
        &Asked::Align { tp, align },
    );
    match done.map_err(|error| error.to_string())? {
        Outcome::Padded(_) => Ok(()),
        Outcome::Nothing(why) => Err(why),
    }
}

/// A checkpoint in a family's names.
fn in_names(names: &Names, model_type: &str) -> tempfile::TempDir {
    let (case, _, logical) = made(names.line);
    let mut file = before(&case, &logical, names.family, names.prefix);
    let mut more = Map::new();
    let width = if names.wide {
        "intermediate_size"
    } else {
        "moe_intermediate_size"
    };
    more.insert(width.to_owned(), I.into());
    if model_type == "gemma4" {
        // The dense MLP beside the experts.
        more.insert("intermediate_size".to_owned(), 512.into());
        more.insert("enable_moe_block".to_owned(), true.into());
    }
    if names.line != GATED && names.family == Family::GptOss {
        more.insert(
            "quantization_config".to_owned(),
            json!({"quant_method": "mxfp4"}),
        );
    }
    if names.family == Family::Each(["none", "up_proj", "down_proj"]) {
        more.insert("hybrid_override_pattern".to_owned(), "E".into());
    }
    if let Some((word, keys)) = names.shared {
        for &(key, value) in keys {
            more.insert(key.to_owned(), value.into());
        }
        let plain = if names.line == GATED {
            names.family
        } else {
            UNGATED
        };
        let each = match plain {
            Family::Each(_) => plain,
            _ => QWEN,
        };
        for (name, dtype, shape, bytes) in before(&case, &logical, each, names.prefix).tensors {
            if let Some(rest) = name.strip_prefix(&format!("{}experts.0.", names.prefix)) {
                file.add(
                    format!("{}{word}.{rest}", names.prefix),
                    dtype,
                    &shape,
                    bytes,
                );
            }
        }
    }
    written(&config(model_type, &Value::Object(more)), &file)
}

#[test]
fn advice_to_pad_is_followed_in_every_familys_names() {
    let mut faults = Vec::new();
    for names in READ {
        for model_type in names.types {
            let folder = in_names(names, model_type);
            let requests = advised(folder.path());
            if requests.is_empty() {
                faults.push(format!("{model_type}: nothing is advised"));
            }
            let refused = requests
                .into_iter()
                .filter_map(|pad| padded(folder.path(), pad).err());
            faults.extend(refused.map(|why| format!("{model_type}: {why}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// DBRX, Granite and Step were advised to be padded, and `pad` found no expert of theirs.
#[test]
fn names_that_pad_does_not_read_are_not_advised() {
    for odd in UNREAD {
        let mut file = Invented::default();
        file.add("lm_head.weight", Dtype::BF16, &[2], vec![0; 4]);
        for (name, shape) in odd.tensors {
            let bytes = vec![0; 2 * shape.iter().product::<usize>()];
            file.add(*name, Dtype::BF16, shape, bytes);
        }
        let keys: Value = serde_json::from_str(odd.keys).unwrap();
        for model_type in odd.types {
            let folder = written(&config(model_type, &keys), &file);
            assert_eq!(advised(folder.path()), [], "{model_type}");
            let why = padded(folder.path(), PadAs { tp: TP, align: 128 }).unwrap_err();
            assert!(
                !why.is_empty() && !why.contains('\n'),
                "{model_type}: {why}"
            );
        }
    }
}

/// Jamba's one key gives both widths; lists give several; a second key says the same width elsewhere.
#[test]
fn configs_that_cannot_say_another_width_are_not_advised() {
    let (case, _, logical) = made(GATED);
    let file = |prefix: &str| before(&case, &logical, QWEN, prefix);
    let plain = file("model.layers.1.feed_forward.");
    let jamba = json!({"intermediate_size": I, "num_hidden_layers": 2, "expert_layer_period": 2, "expert_layer_offset": 1});
    let uneven = json!({"moe_intermediate_size": [I, 2 * I], "num_hidden_layers": 2});
    let within = config("qwen3_moe", &json!({"moe_intermediate_size": I}));
    let torn = json!({"text_config": within, "moe_intermediate_size": 2 * I});
    let stray = json!({"moe_intermediate_size": I, "mtp_config": {"moe_intermediate_size": I}});
    let before = json!({"moe_intermediate_size": I, "padproof": {}});
    let mlp = file("model.layers.0.mlp.");
    for (model_type, more, file) in [
        ("jamba", &jamba, &plain),
        ("hunyuan_v1_moe", &uneven, &mlp),
        ("qwen3_moe", &torn, &mlp),
        ("qwen3_moe", &stray, &mlp),
        ("qwen3_moe", &before, &mlp),
    ] {
        let folder = written(&config(model_type, more), file);
        assert_eq!(advised(folder.path()), [], "{more}");
        let why = padded(folder.path(), PadAs { tp: TP, align: 128 }).unwrap_err();
        assert!(!why.is_empty() && !why.contains('\n'), "{more}: {why}");
    }
    // Experts in every layer: no dense one has the key.
    let whole = json!({"intermediate_size": I, "expert_layer_period": 1, "expert_layer_offset": 0});
    let folder = written(
        &config("jamba", &whole),
        &file("model.layers.0.feed_forward."),
    );
    let requests = advised(folder.path());
    assert!(!requests.is_empty());
    for pad in requests {
        padded(folder.path(), pad).unwrap();
    }
}

/// What is advised of a shipped model was followed above, in the names of its family, or is none.
#[test]
fn every_shipped_models_family_is_among_these() {
    let read = READ.iter().flat_map(|names| names.types);
    let unread = UNREAD.iter().flat_map(|odd| odd.types);
    let known: BTreeSet<&str> = read.chain(unread).copied().chain(["jamba"]).collect();
    let missing = builtin()
        .iter()
        .filter(|model| !model.model_type.is_empty() && !known.contains(model.model_type.as_str()));
    let missing: Vec<_> = missing
        .map(|model| (&model.name, &model.model_type))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let query = Query {
        all: false,
        advice: true,
        ..Query::of(Parallel { tp: 16, ep: 1 })
    };
    for model in builtin() {
        let told = survey(model, Rules::builtin(), &query).unwrap();
        let ways = told.advice.rules.iter().flat_map(|rule| &rule.instead);
        let offline = ways.filter(|way| way.way == Way::PadOffline).count();
        let not = unread_type(&model.model_type) || model.model_type == "jamba";
        assert!(!not || offline == 0, "{}", model.name);
    }
}

fn unread_type(model_type: &str) -> bool {
    UNREAD.iter().any(|odd| odd.types.contains(&model_type))
}

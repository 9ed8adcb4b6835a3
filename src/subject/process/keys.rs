//! The keys by which a process says what it can be asked, each with what a plan has of it.
//!
//! It must not read what a process says. Layer 5.

use crate::plan::Plan;
use crate::terms::{ActQuant, Activation, Bias, Nibble, Order, Route, Storage, WeightFormat};

/// A key of the handshake that lists words of case lines.
#[derive(Debug)]
pub struct WordKey {
    /// The key.
    pub key: &'static str,
    /// Every word there is; the first is what a subject takes that leaves the key out.
    pub words: fn() -> Vec<&'static str>,
    /// The plan's words that must be listed.
    pub(super) of: fn(&Plan) -> Vec<&'static str>,
    /// What the words are.
    pub meaning: &'static str,
}

/// A key of `granule`, `min` or `max`.
#[derive(Debug)]
pub struct SizeKey {
    /// The key.
    pub key: &'static str,
    /// The plan's size.
    pub(super) of: fn(&Plan) -> u64,
    /// The largest of a subject that names none.
    pub(super) plain_most: u64,
    /// What the size is.
    pub meaning: &'static str,
}

macro_rules! names {
    ($type:ident) => {
        || $type::ALL.iter().map(|word| word.name()).collect()
    };
}

/// Keys that list words.
pub const WORDS: &[WordKey] = &[
    WordKey {
        key: "weights",
        words: names!(WeightFormat),
        of: |plan| vec![plan.weight.name()],
        meaning: "formats of the weights",
    },
    WordKey {
        key: "activations",
        words: names!(Activation),
        of: |plan| vec![plan.activation.name()],
        meaning: "activations",
    },
    WordKey {
        key: "orders",
        words: names!(Order),
        of: |plan| match plan.dims.halves {
            2 => vec![plan.order.name()],
            _ => Vec::new(),
        },
        meaning: "orders of the rows of a gated w13; not gated ones have none",
    },
    WordKey {
        key: "routes",
        words: || {
            let mut all: Vec<_> = Route::ALL.iter().map(|word| word.name()).collect();
            let plain = all.iter().position(|w| *w == Route::SoftmaxRenorm.name());
            all.swap(0, plain.unwrap_or(0));
            all
        },
        of: |plan| vec![plan.numerics.route.name()],
        meaning: "routers; a subject that uses `topk_ids` and `topk_weights` takes all but `llama4`, whose weight multiplies the input",
    },
    WordKey {
        key: "biases",
        words: names!(Bias),
        of: |plan| vec![plan.bias.name()],
        meaning: "biases",
    },
    WordKey {
        key: "input_quants",
        words: names!(ActQuant),
        of: |plan| vec![plan.numerics.qx.name()],
        meaning: "quantisation of the experts' input on the fly (`qx`)",
    },
    WordKey {
        key: "mid_quants",
        words: names!(ActQuant),
        of: |plan| vec![plan.numerics.qh.name()],
        meaning: "quantisation of the intermediate on the fly (`qh`)",
    },
    WordKey {
        key: "mids",
        words: || vec!["f32", "bf16"],
        of: |plan| {
            vec![if plan.numerics.mid_bf16 {
                "bf16"
            } else {
                "f32"
            }]
        },
        meaning: "types of the intermediate (`mid`)",
    },
    WordKey {
        key: "stores",
        words: names!(Storage),
        of: |plan| vec![plan.storage.name(), plan.weight_storage.name()],
        meaning: "storage layouts of scales and of weights",
    },
    WordKey {
        key: "nibbles",
        words: names!(Nibble),
        of: |plan| match plan.weight.element().bits() {
            4 => vec![plan.nibble.name()],
            _ => Vec::new(),
        },
        meaning: "nibble orders of packed weights; others have none",
    },
];

/// A key of any size.
const fn size(key: &'static str, of: fn(&Plan) -> u64, meaning: &'static str) -> SizeKey {
    SizeKey {
        key,
        of,
        plain_most: u64::MAX,
        meaning,
    }
}

/// Keys of `granule`: what padded sizes must be multiples of.
pub const GRANULES: &[SizeKey] = &[
    size(
        "intermediate",
        |plan| plan.width_padded,
        "padded width of a rank's half",
    ),
    size("hidden", |plan| plan.hidden_padded, "padded hidden size"),
    size("tokens", |plan| plan.tokens_padded, "padded tokens"),
];

/// Keys of `min` and `max`: the least and the largest sizes taken.
pub const SIZES: &[SizeKey] = &[
    size("tokens", |plan| plan.dims.t, "tokens"),
    size(
        "experts",
        |plan| plan.ranks.iter().map(|r| r.expert_len).max().unwrap_or(0),
        "experts of a rank",
    ),
    SizeKey {
        key: "zero_experts",
        of: |plan| plan.numerics.zero,
        // Identity experts are for those that say so.
        plain_most: 0,
        meaning: "identity experts",
    },
    size("top_k", |plan| plan.dims.k, "experts chosen per token"),
    size("hidden", |plan| plan.hidden_padded, "padded hidden size"),
    size(
        "intermediate",
        |plan| plan.width_padded,
        "padded width of a rank's half",
    ),
    size("tp", |plan| plan.parallel.tp, "ranks in all"),
    size("ep", |plan| plan.parallel.ep, "expert-parallel groups"),
];

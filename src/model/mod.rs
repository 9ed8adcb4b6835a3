//! Reads a Hugging Face `config.json`, or a built-in model, into the facts a plan needs.
//!
//! It must not know rules, parallelism or padding. Layer 2; uses `num` and `terms`.

mod activation;
mod builtin;
mod doc;
mod edit;
mod error;
mod facts;
mod family;
mod ignore;
mod json;
mod keys;
mod layers;
mod load;
mod methods;
mod overrides;
mod parts;
mod quant;
mod router;
mod schemes;
mod uneven;

pub use builtin::builtin;
pub use edit::edited;
pub use error::{ModelError, NotMoe, Said};
pub use facts::{Grade, Model, Quant, Share, ZeroPoints};
pub use json::{top_level, value_at};
pub use keys::{PADDED, WidthKey, WidthOf, block_key, group_key, torn, width_keys, width_strays};
pub use load::{FILE_LIMIT, LAYER_LIMIT, SIZE_LIMIT, load, load_each, parse};
pub use uneven::parse_each;

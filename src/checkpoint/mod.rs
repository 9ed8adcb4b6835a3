//! Reads safetensors files and Hugging Face directories, and knows the names that families of
//! checkpoints give their experts' tensors.
//!
//! It must not pad, or know what a model computes; a file is never trusted. Layer 4.

mod convert;
mod dump;
mod error;
mod file;
mod find;
mod layer;
mod names;
mod parts;
mod place;
mod set;
mod unique;
mod write;

pub use convert::{codes_in, stored_code};
pub use dump::{Dump, Stored, Whose};
pub use error::CheckpointError;
pub use file::{Entry, TensorFile};
pub use find::{Kind, changes_meaning};
pub use layer::{Layer, LayerShape};
pub use names::{Named, Rows, named};
pub use place::{LayerId, NoLayerId, Place, layer_of, place_of};
pub use set::{Checkpoint, INDEX, SINGLE};
pub use write::{Output, header};

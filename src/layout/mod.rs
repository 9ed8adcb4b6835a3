//! Maps logical elements to (byte, nibble) in padded, sharded, packed, swizzled storage, and back.
//!
//! It must not compute the model. Layer 4.

mod axis;
mod copy;
mod error;
mod grid;
mod inputs;
mod interleaved;
mod map;
mod scatter;
mod visit;

#[cfg(test)]
mod lemmas;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod swizzles;

pub use axis::{Axis, Run};
pub use copy::{Pads, pack, pack_into, set_pads, unpack};
pub use error::LayoutError;
pub use grid::{Address, Grid};
pub use inputs::{
    PackedInputs, RankInputs, logical_of, pack_layer, pack_layer_in, pack_layer_into, pad_code,
};
pub use map::{Map, map, roles};
pub use visit::{Place3, for_each, for_each_storage_pad, for_each_stretch};

//! Turns numbers into bits and back for each stored element type, and measures distance in ULP.
//!
//! It must not know shapes. Layer 0.

mod bulk;
mod decode;
mod dtype;
mod encode;
mod fnuz;
mod nibble;
mod spec;
mod ulp;

pub use bulk::{decode_codes, decode_into, encode_into};
pub use decode::{E8m0Nan, Reader};
pub use dtype::Dtype;
pub use encode::{Encode, NanInto, Nonpositive, Overflow, ScaleEncode, ScaleRounding, Ties, Zero};
pub use fnuz::fn_to_fnuz;
pub use nibble::{
    NibbleOrder, decode_nibbles_into, encode_nibbles_into, pack_nibbles, unpack_nibbles,
};
pub use ulp::ulp_distance;

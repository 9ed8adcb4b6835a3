//! Holds and spells a case: everything one check needs, as one line of text.
//!
//! It must not derive anything: sizes that follow from these come from `plan`. Layer 2.

mod error;
mod line;
mod types;
mod valid;

pub use error::ParseError;
pub use line::KEYS;
pub use types::{Case, PadSpec, Scheme};
pub use valid::{InvalidCase, SIZE_MAX};

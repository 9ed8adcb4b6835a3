//! Holds and spells a case: everything one check needs, as one line of text.
//!
//! It must not derive anything: sizes that follow from these come from `plan`. Layer 2.

mod line;
mod types;

pub use line::ParseError;
pub use types::{Case, PadSpec, Scheme};

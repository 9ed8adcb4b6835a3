//! Turns events and plans into one format each.
//!
//! It must not decide verdicts, and writes only to what it is given. Layer 10.

mod plan_human;
mod plan_json;
mod plan_markdown;
mod style;
mod words;

pub use plan_human::{plan_human, tensors_human};
pub use plan_json::plan_json;
pub use plan_markdown::plan_markdown;
pub use style::{fit_word, table};
pub use words::{plural, thousands};

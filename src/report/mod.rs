//! Turns events and plans into one format each.
//!
//! It must not decide verdicts, and writes only to what it is given. Layer 10.

mod advice;
mod audit_human;
mod audit_json;
mod block;
mod codes;
mod concise;
mod grid;
mod human;
mod json;
mod jsonl;
mod junit;
mod matrix;
mod orders;
mod pad_human;
mod parts;
mod plan_human;
mod plan_json;
mod plan_markdown;
mod plan_rows;
mod plan_summary;
mod plan_tensors;
mod shares;
mod style;
mod table_data;
mod table_human;
mod words;

pub use audit_human::audit_human;
pub use audit_json::audit_json;
pub use block::finding_block;
pub use codes::{
    CITED, CODES, CodePage, SOURCES, all_case_words, case_words, cited_note, cited_rows,
    fault_section, fault_words, page_human, verdict_section,
};
pub use concise::Concise;
pub use human::{Human, Verbosity};
pub use json::Json;
pub use jsonl::Jsonl;
pub use junit::Junit;
pub use matrix::{matrix_human, matrix_json};
pub use orders::orders_human;
pub use pad_human::{padded_human, verified_human};
pub use plan_human::{plan_human, tensors_human};
pub use plan_json::plan_json;
pub use plan_markdown::plan_markdown;
pub use plan_tensors::plan_tensors;
pub use style::{fit_word, table};
pub use table_data::{diff_json, table_csv, table_json};
pub use table_human::{diff_human, diff_markdown, table_human, table_markdown};
pub use words::{plural, thousands};

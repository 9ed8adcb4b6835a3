//! Every test that needs neither a device nor a feature of its own, in one program: a link for each file was a third of
//! what `cargo test` took, and one file's last test kept a core waiting. `cargo test kernels::` runs one of them.

mod case_text;
#[path = "checkpoint/main.rs"]
mod checkpoint;
#[path = "cli/main.rs"]
mod cli;
mod codes;
mod cpu;
mod encode_policies;
#[path = "external/main.rs"]
mod external;
mod formats;
mod generators;
mod inert;
#[path = "kernels/main.rs"]
mod kernels;
#[path = "models/main.rs"]
mod models;
mod mutants;
mod proofs;
mod properties;
mod readme;
#[path = "reference/main.rs"]
mod reference;
mod reference_bounds;
mod replay;
mod report_formats;
#[path = "reports/main.rs"]
mod reports;
mod reveal;
mod rule_properties;
mod rules;
mod runner;
mod schedules;
mod snapshots;
mod suite_files;
mod sweeps;
mod tidy;

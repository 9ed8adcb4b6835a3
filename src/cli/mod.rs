//! Turns arguments and environment into calls, and counts into an exit code.
//!
//! It must not contain checks. Layer 11.

mod args;
mod audit;
mod bytes;
mod check;
mod diff;
mod doctor;
mod environment;
mod error;
mod explain;
mod export;
#[cfg(feature = "hub")]
mod hub;
mod interrupts;
mod list;
mod main;
mod output;
mod pad;
mod pad_args;
mod plan;
mod progress;
mod reveal;
mod run;
mod select;
mod show;
mod subject;
mod values;
mod verify;

pub use main::main;

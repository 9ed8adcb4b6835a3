//! Turns arguments and environment into calls, and counts into an exit code.
//!
//! It must not contain checks. Layer 11.

mod args;
mod environment;
mod error;
mod list;
mod main;
mod output;
mod plan;
mod show;

pub use main::main;

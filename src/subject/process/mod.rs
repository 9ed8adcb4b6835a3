//! The process subject: any program that answers requests on its standard input and output.

mod child;
mod frame;
mod group;
mod keys;
mod memory;
mod message;
mod program;
mod reply;
mod run;
mod stderr;
mod supports;

pub use group::Running;
pub use keys::{GRANULES, SIZES, WORDS};
pub use message::PROTOCOL;
pub use program::{Limits, Program};
pub use run::Process;
pub use supports::Supports;

#[cfg(test)]
mod tests;

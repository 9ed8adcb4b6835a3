//! The CPU subject.

mod activation;
mod dot;
mod experts;
mod input;
mod math;
mod matrix;
mod rank;
mod route;
mod run;
mod sizes;
mod tiles;
mod unpack;

pub use math::{SIGMOID_ERROR_ULP, exp};
pub use run::Cpu;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

//! The CPU subject.

mod activation;
mod dot;
mod experts;
mod input;
mod math;
mod matrix;
mod ordered;
mod rank;
mod route;
mod run;
mod sizes;
mod tiles;
mod unpack;

pub use math::{SIGMOID_ERROR_ULP, exp};
#[cfg(any(feature = "cuda", feature = "cuda-host"))]
pub(in crate::subject) use matrix::{expect_bytes, size_error};
pub(in crate::subject) use route::{Routing, route};
pub use run::Cpu;
pub(in crate::subject) use sizes::Sizes;
#[cfg(any(feature = "cuda", feature = "cuda-host"))]
pub(in crate::subject) use sizes::axis;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

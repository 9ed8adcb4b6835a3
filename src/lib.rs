//! padproof proves that padding a Mixture-of-Experts layer keeps its outputs.

pub mod num;
pub mod plan;
pub mod rule;
pub mod tensor;
pub mod terms;

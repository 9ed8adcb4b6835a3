//! What a subject shows of its way to the output.
//!
//! It must not interpret. Layer 3.

/// A rank's values of one stage, a row for each routed token (token * k + choice); rows of experts
/// that the rank does not hold mean nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageShare {
    /// Columns, padding included.
    pub cols: usize,
    /// Values [t * k, cols].
    pub values: Vec<f32>,
}

/// The stages that a subject shows; empty where it does not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageOutputs {
    /// Expert ids that it computed with, [t * k].
    pub ids: Vec<u32>,
    /// First projection with bias, in stored rows, a share for each rank.
    pub first: Vec<StageShare>,
    /// After the activation.
    pub middle: Vec<StageShare>,
    /// Each rank's part of the second projection with bias, before the routing weight.
    pub second: Vec<StageShare>,
}

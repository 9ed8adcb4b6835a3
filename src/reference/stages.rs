//! What the layer computes on its way, for a subject that shows its own.
//!
//! It must not judge. Layer 5.

use super::bound::Row;
use super::product::Product;

/// One value and bound for each column of each routed token.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stage {
    /// Columns.
    pub cols: usize,
    /// Values [t * k, cols].
    pub values: Vec<f64>,
    /// Bound on |subject - value| for every f32 subject, [t * k, cols].
    pub bound: Vec<f64>,
}

impl Stage {
    pub(super) fn new(rows: usize, cols: usize) -> Stage {
        Stage {
            cols,
            values: vec![0.0; rows * cols],
            bound: vec![0.0; rows * cols],
        }
    }

    /// Sets one element.
    pub(super) fn set(&mut self, row: usize, col: usize, value: f64, bound: f64) {
        self.values[row * self.cols + col] = value;
        self.bound[row * self.cols + col] = bound;
    }
}

/// The stages of one layer, each for a routed token: token * k + choice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stages {
    /// First projection with its bias, [t * k, halves * i], gate's rows first.
    pub first: Stage,
    /// After the activation, [t * k, i].
    pub middle: Stage,
    /// Second projection with its bias, before the routing weight, [t * k, h].
    pub second: Stage,
}

impl Stages {
    /// Keeps the second projection of the expert's tokens.
    pub(super) fn keep_second(&mut self, places: &[usize], bounds: &[Row], second: &Product) {
        let rows = second.rows();
        let results = second
            .values
            .chunks_exact(rows)
            .zip(second.reach.chunks_exact(rows));
        for ((place, bound), (z, reach)) in places.iter().zip(bounds).zip(results) {
            for r in 0..self.second.cols {
                let limit = bound.limit(reach[r], second.bias[r], z[r]);
                self.second.set(*place, r, z[r] + second.bias[r], limit);
            }
        }
    }
}

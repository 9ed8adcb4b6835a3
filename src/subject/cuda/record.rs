//! Launches written down, for `kernels/host/main.cpp`, which runs them again under sanitizers.
//!
//! It must not run anything. Layer 5.

use super::host::Turns;
use super::layer::Work;
use super::params::{Fault, Matrix, element};

/// What a record starts with.
const MARK: i64 = 0x7061_6470_726f_6f66;

/// Records of ranks, one after the other.
#[derive(Debug, Default)]
pub(super) struct Record {
    fault: Fault,
    bytes: Vec<u8>,
}

impl Record {
    /// Nothing yet; whoever runs it plants `fault`.
    pub(super) fn new(fault: Fault) -> Record {
        Record {
            fault,
            bytes: Vec::new(),
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds one rank: what its launches are told, x, ids, weights, and the output they gave.
    pub(super) fn add(&mut self, work: &Work<'_>, turns: Turns, out: &[u8]) {
        let params = &work.params;
        self.number(MARK);
        self.matrix(&params.w13);
        self.matrix(&params.w2);
        for n in [
            params.tokens,
            params.top_k,
            params.experts,
            params.expert_first,
            params.hidden,
            params.width,
            params.half_rows,
            params.halves,
            params.up_first,
            params.group,
            params.act,
            params.high_first,
            params.weights_input,
            params.mid_bf16,
            params.x_pitch,
            params.mid_pitch,
            params.x_unit,
            params.mid_unit,
            self.fault as i32,
        ] {
            self.number(n.into());
        }
        self.size(work.blocks);
        let (order, seed) = turns.code();
        self.number(order.into());
        self.number(seed.cast_signed());
        for launch in &work.launches {
            self.number(launch.kernel as i64);
            self.number(element(launch.inputs).unwrap_or(-1).into());
            self.number(element(launch.weights).unwrap_or(-1).into());
            self.number(launch.fast.into());
            self.number(launch.grid.0.into());
            self.number(launch.grid.1.into());
            self.size(launch.shared);
        }
        for projection in [&work.rank.w13, &work.rank.w2] {
            self.blob(projection.weights);
            for tensor in [projection.scales, projection.globals, projection.bias] {
                self.blob(tensor.unwrap_or_default());
            }
        }
        self.blob(work.x);
        self.blob(bytemuck::cast_slice(work.ids));
        self.blob(bytemuck::cast_slice(work.weights));
        self.blob(out);
    }

    fn matrix(&mut self, matrix: &Matrix) {
        self.number(matrix.expert_bytes);
        self.number(matrix.expert_scale_bytes);
        for n in [
            matrix.rows,
            matrix.cols,
            matrix.row_bytes,
            matrix.unit,
            matrix.scale_element,
            matrix.scale_cols,
            matrix.row_block,
            matrix.col_block,
            matrix.tiled,
        ] {
            self.number(n.into());
        }
    }

    fn number(&mut self, n: i64) {
        self.bytes.extend_from_slice(&n.to_ne_bytes());
    }

    fn size(&mut self, n: usize) {
        self.number(i64::try_from(n).unwrap_or(i64::MAX));
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }
}

//! What a launch is told: the structs of `kernels/params.h`, field by field, and the kernels' numbers.
//!
//! It must not check anything: `limits`, `rank` and `layer` have. Layer 5.

use crate::num::Dtype;
use crate::terms::Activation;
use std::ffi::{c_int, c_longlong};

/// Rows of a block (`PP_BM`).
pub(super) const BLOCK_ROWS: usize = 16;
/// Weight rows of a block (`PP_BN`).
pub(super) const BLOCK_COLS: usize = 64;
/// Columns that share a scale and a partial sum (`PP_GROUP`).
pub(super) const GROUP: usize = 16;
/// Columns of a stage (`PP_BK`).
const STAGE_COLS: usize = 64;
/// Bytes between rows in shared memory (`PP_SKEW`).
const SKEW: usize = 16;

/// Threads of the one block of `pp_align` (`PP_ALIGN_THREADS`).
pub(super) const ALIGN_THREADS: u32 = 256;
/// Threads of a block of a product (`PP_THREADS`).
#[cfg(feature = "cuda")]
pub(super) const THREADS: u32 = 128;
/// Ints of shared memory that `pp_align` holds an expert (`PP_ALIGN_INTS`).
pub(super) const ALIGN_INTS: usize = (ALIGN_THREADS / 32) as usize + 2;

/// `PpMatrix` of `kernels/params.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Matrix {
    pub(super) weights: *const u8,
    pub(super) scales: *const u8,
    /// Floats.
    pub(super) globals: *const u8,
    /// Floats.
    pub(super) bias: *const u8,
    pub(super) expert_bytes: c_longlong,
    pub(super) expert_scale_bytes: c_longlong,
    pub(super) rows: c_int,
    pub(super) cols: c_int,
    pub(super) row_bytes: c_int,
    pub(super) unit: c_int,
    pub(super) scale_element: c_int,
    pub(super) scale_cols: c_int,
    pub(super) row_block: c_int,
    pub(super) col_block: c_int,
    pub(super) tiled: c_int,
    pub(super) reserved: c_int,
}

/// `PpParams` of `kernels/params.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Params {
    pub(super) w13: Matrix,
    pub(super) w2: Matrix,
    pub(super) x: *const u8,
    pub(super) ids: *const c_int,
    pub(super) weights: *const f32,
    pub(super) sorted: *mut c_int,
    pub(super) block_expert: *mut c_int,
    pub(super) blocks: *mut c_int,
    pub(super) needed: *mut u32,
    pub(super) done: *mut u32,
    pub(super) mid: *mut u8,
    pub(super) y: *mut f32,
    pub(super) out: *mut f32,
    pub(super) tokens: c_int,
    pub(super) top_k: c_int,
    pub(super) experts: c_int,
    pub(super) expert_first: c_int,
    pub(super) hidden: c_int,
    pub(super) width: c_int,
    pub(super) half_rows: c_int,
    pub(super) halves: c_int,
    pub(super) up_first: c_int,
    pub(super) group: c_int,
    pub(super) act: c_int,
    pub(super) high_first: c_int,
    pub(super) weights_input: c_int,
    pub(super) mid_bf16: c_int,
    pub(super) x_pitch: c_int,
    pub(super) mid_pitch: c_int,
    pub(super) x_unit: c_int,
    pub(super) mid_unit: c_int,
    pub(super) fault: c_int,
}

/// `PpElement` of `kernels/numeric.cuh`; none for element types without a kernel.
pub(super) const fn element(dtype: Dtype) -> Option<c_int> {
    match dtype {
        Dtype::F32 => Some(0),
        Dtype::F16 => Some(1),
        Dtype::Bf16 => Some(2),
        Dtype::E4m3 => Some(3),
        Dtype::E2m1 => Some(4),
        Dtype::Int8 => Some(5),
        Dtype::Int4 => Some(6),
        Dtype::E8m0 => Some(7),
        Dtype::E4m3Fnuz | Dtype::E5m2 => None,
    }
}

/// `PpActivation` of `kernels/numeric.cuh`.
pub(super) const fn activation(act: Activation) -> c_int {
    match act {
        Activation::Swiglu => 0,
        Activation::SwigluRounded => 1,
        Activation::Geglu => 2,
        Activation::GegluTanh => 3,
        Activation::SwigluOai => 4,
        Activation::SwigluClamp => 5,
        Activation::SwigluStep => 6,
        Activation::Situ => 7,
        Activation::Powlu => 8,
        Activation::Relu2 => 9,
        Activation::Relu2Clamped => 10,
        Activation::Silu => 11,
        Activation::Gelu => 12,
        Activation::GeluTanh => 13,
        Activation::Relu => 14,
        Activation::Identity => 15,
    }
}

/// A fault planted in the kernels (`PpFault` of `kernels/moe.cu`), compiled in for the host only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(i32)]
pub enum Fault {
    /// None.
    #[default]
    None = 0,
    /// The general path reads whole groups of columns, past the end of a row.
    TailRead = 1,
    /// No barrier between loading a stage and computing from it.
    NoBarrierBefore = 2,
    /// No barrier between computing from a stage and loading it again.
    NoBarrierAfter = 3,
    /// The second half of w13 is sought one row early.
    WrongHalf = 4,
    /// Scales are read a whole stage at a time, past the end of a row (facts/reports.md B87).
    ScaleOverRead = 5,
    /// Sentinel rows are stored like others.
    SentinelAsAddress = 6,
    /// Asynchronous copies are not waited for.
    NoWait = 7,
    /// Shared memory beyond the end of a row is left as it was.
    DirtyShared = 8,
    /// An id of -1 counts for the rank's first expert (facts/reports.md B91).
    NegativeId = 9,
    /// Groups are added backwards where K is a multiple of 32.
    OrderFromK = 10,
    /// A block counts its choices before all of its threads have stored them.
    CountEarly = 11,
    /// A block adds a token's choices though it was not the last to store one.
    CombineEarly = 12,
    /// Alignment does not count what a warp placed in the turn before.
    TurnForgotten = 13,
    /// Alignment counts blocks anew for every 32 experts.
    ScanNoCarry = 14,
    /// A lane's count of placed slots is read by its warp without a barrier.
    NoWarpSync = 15,
    /// A token's choices are added last to first.
    ChoicesReversed = 16,
}

impl Fault {
    /// Every planted fault.
    pub const ALL: [Fault; 16] = [
        Fault::TailRead,
        Fault::NoBarrierBefore,
        Fault::NoBarrierAfter,
        Fault::WrongHalf,
        Fault::ScaleOverRead,
        Fault::SentinelAsAddress,
        Fault::NoWait,
        Fault::DirtyShared,
        Fault::NegativeId,
        Fault::OrderFromK,
        Fault::CountEarly,
        Fault::CombineEarly,
        Fault::TurnForgotten,
        Fault::ScanNoCarry,
        Fault::NoWarpSync,
        Fault::ChoicesReversed,
    ];
}

/// Dynamic shared memory of a product (`pp_shared_bytes`).
pub(super) fn shared_bytes(inputs: Dtype, weights: Dtype) -> usize {
    let row = |dtype: Dtype| STAGE_COLS * dtype.bits() as usize / 8 + SKEW;
    let stage = BLOCK_ROWS * row(inputs)
        + BLOCK_COLS * row(weights)
        + BLOCK_COLS * (STAGE_COLS / GROUP) * 4;
    2 * stage + 3 * BLOCK_ROWS * 4 + 2 * BLOCK_COLS * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_numbered_as_in_the_kernels() {
        let source = include_str!("../../../kernels/moe.cu");
        let list = source.split_once("enum PpFault").expect("it is there").1;
        let list = list.split_once("};").expect("it ends").0;
        let numbers: Vec<i32> = list
            .lines()
            .filter_map(|line| line.split_once(" = ")?.1.split_once(',')?.0.parse().ok())
            .collect();
        assert_eq!(numbers, Fault::ALL.map(|fault| fault as i32));
    }

    #[test]
    fn the_table_of_resources_has_the_shared_memory_that_launches_ask_for() {
        let table = include_str!("../../../kernels/RESOURCES.txt");
        let dtype = |name: &str| {
            let all = [
                Dtype::F32,
                Dtype::F16,
                Dtype::Bf16,
                Dtype::E4m3,
                Dtype::E2m1,
                Dtype::Int8,
                Dtype::Int4,
            ];
            all.into_iter().find(|dtype| dtype.to_string() == name)
        };
        let mut seen = 0;
        for row in table.lines().skip(1) {
            let words: Vec<&str> = row.split_whitespace().collect();
            let [_, inputs, weights, kernel, _, _, _, shared] = words[..] else {
                panic!("{row}");
            };
            let (Some(inputs), Some(weights)) = (dtype(inputs), dtype(weights)) else {
                panic!("{row}");
            };
            let wanted = match kernel {
                "pp_align" => ALIGN_INTS * 4,
                _ => shared_bytes(inputs, weights),
            };
            assert_eq!(shared.parse(), Ok(wanted), "{row}");
            seen += 1;
        }
        assert!(seen > 400, "{seen} rows");
    }
}

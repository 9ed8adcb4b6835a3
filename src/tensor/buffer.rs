//! A tensor: bytes, a shape, guards.

use ndarray::{ArrayViewD, IxDyn};
use smallvec::SmallVec;

/// Bytes of guard on each side of a tensor's body; a multiple of 64 keeps the body aligned.
const GUARD: usize = 64;
/// What a guard holds: a NaN in every float format that has one at 0xff or 0x7f is not wanted
/// here, only a pattern that no kernel writes by accident.
const GUARD_BYTE: u8 = 0xC5;

/// A shaped buffer of whole bytes, with guards on both sides.
///
/// `shape` counts elements. An element is `bits` wide: 4 for packed nibbles (the last axis is
/// then even or the final nibble unused), else 8, 16 or 32.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    name: &'static str,
    shape: SmallVec<[usize; 3]>,
    bits: usize,
    bytes: usize,
    /// Backed by u64 so that views as f32 and u16 are aligned.
    store: Vec<u64>,
}

impl Tensor {
    /// A tensor of zero bytes.
    ///
    /// # Panics
    /// When the byte count leaves usize: callers check sizes on the plan first.
    pub fn zeroed(name: &'static str, shape: &[usize], bits: usize) -> Tensor {
        // Fresh pages come zeroed.
        Tensor::zeroed_in(|words| vec![0; words], name, shape, bits)
    }

    /// The same in `store(words)`: that many zero words.
    pub(super) fn zeroed_in(
        store: impl FnOnce(usize) -> Vec<u64>,
        name: &'static str,
        shape: &[usize],
        bits: usize,
    ) -> Tensor {
        let row = shape.last().copied().unwrap_or(1);
        let rows: usize = shape[..shape.len().saturating_sub(1)]
            .iter()
            .try_fold(1usize, |a, &b| a.checked_mul(b))
            .expect("tensor sizes are checked on the plan");
        let row_bytes = row
            .checked_mul(bits)
            .expect("tensor sizes are checked on the plan")
            .div_ceil(8);
        let bytes = rows
            .checked_mul(row_bytes)
            .expect("tensor sizes are checked on the plan");
        let words = (bytes + 2 * GUARD).div_ceil(8);
        let mut store = store(words);
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut store);
        all[..GUARD].fill(GUARD_BYTE);
        all[GUARD + bytes..].fill(GUARD_BYTE);
        Tensor {
            name,
            shape: SmallVec::from_slice(shape),
            bits,
            bytes,
            store,
        }
    }

    /// Its memory.
    pub(super) fn into_store(self) -> Vec<u64> {
        self.store
    }

    /// An f32 tensor holding `values` in row-major order.
    pub fn from_f32(name: &'static str, shape: &[usize], values: &[f32]) -> Tensor {
        let mut t = Tensor::zeroed(name, shape, 32);
        t.f32s_mut().copy_from_slice(values);
        t
    }

    /// The tensor's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Shape in elements.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bits of an element.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// Bytes of one row (last axis).
    pub fn row_bytes(&self) -> usize {
        (self.shape.last().copied().unwrap_or(1) * self.bits).div_ceil(8)
    }

    /// The body.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.store)[GUARD..GUARD + self.bytes]
    }

    /// The body, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        &mut bytemuck::cast_slice_mut(&mut self.store)[GUARD..GUARD + bytes]
    }

    /// The body as f32.
    ///
    /// # Panics
    /// When elements are not 32 bits wide.
    pub fn f32s(&self) -> &[f32] {
        assert_eq!(self.bits, 32, "{} is not a 32-bit tensor", self.name);
        bytemuck::cast_slice(self.bytes())
    }

    /// The body as f32, to be written.
    ///
    /// # Panics
    /// When elements are not 32 bits wide.
    pub fn f32s_mut(&mut self) -> &mut [f32] {
        assert_eq!(self.bits, 32, "{} is not a 32-bit tensor", self.name);
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// The body as an ndarray view of f32.
    pub fn view(&self) -> ArrayViewD<'_, f32> {
        ArrayViewD::from_shape(IxDyn(&self.shape), self.f32s())
            .expect("the body holds exactly the shape's elements")
    }

    /// Whether both guards still hold their pattern.
    pub fn guards_intact(&self) -> bool {
        let all: &[u8] = bytemuck::cast_slice(&self.store);
        all[..GUARD]
            .iter()
            .chain(&all[GUARD + self.bytes..])
            .all(|&b| b == GUARD_BYTE)
    }

    /// Overwrites one guard byte, as a stray write would: for mutants and tests.
    pub fn break_guard(&mut self) {
        let end = GUARD + self.bytes;
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.store)[end] ^= 0xff;
    }
}

/// What the router gets: never padded.
#[derive(Debug, Clone, PartialEq)]
pub enum RouterInput {
    /// Ids and weights, [t, k] row-major.
    Given {
        /// Expert ids.
        ids: Vec<u32>,
        /// Weights.
        weights: Vec<f32>,
    },
    /// Logits `[t, e]` row-major and, for routers that have one, a correction bias `[e]`.
    Logits {
        /// Logits.
        logits: Vec<f32>,
        /// Correction bias; empty when the router has none.
        bias: Vec<f32>,
    },
}

/// The logical tensors of one layer: unpadded, unsharded, one code per element.
///
/// Weight codes are stored one per element: 8 bits wide for formats of 4 and 8 bits, 16 or 32
/// for the others. Rows of w13 are gate's then up's (halves * i rows).
#[derive(Debug, Clone, PartialEq)]
pub struct Logical {
    /// Input, f32 [t, h].
    pub x: Tensor,
    /// What the router gets.
    pub router: RouterInput,
    /// w13 codes [e, halves * i, h].
    pub w13: Tensor,
    /// w2 codes [e, h, i].
    pub w2: Tensor,
    /// w13 scales [e, halves * row blocks of i, column blocks of h], in the scale's dtype.
    pub w13_scale: Option<Tensor>,
    /// w2 scales [e, row blocks of h, column blocks of i].
    pub w2_scale: Option<Tensor>,
    /// Second-level scales f32 [e, halves].
    pub w13_global: Option<Tensor>,
    /// Second-level scales f32 [e, 1].
    pub w2_global: Option<Tensor>,
    /// Bias f32 [e, halves * i].
    pub w13_bias: Option<Tensor>,
    /// Bias f32 [e, h].
    pub w2_bias: Option<Tensor>,
    /// Fixed scale of the input under static quantisation (a power of two).
    pub x_scale: f32,
    /// Fixed scale of the intermediate under static quantisation (a power of two).
    pub h_scale: f32,
}

/// What a subject computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Tokens (rows) of `values`.
    pub tokens: usize,
    /// Hidden size (columns) of `values`: logical, padding already cut.
    pub hidden: usize,
    /// Output f32 [tokens, hidden], row-major.
    pub values: Vec<f32>,
    /// Expert ids chosen, [tokens, top_k], in the order of choice.
    pub ids: Vec<u32>,
    /// Routing weights, [tokens, top_k].
    pub weights: Vec<f32>,
}

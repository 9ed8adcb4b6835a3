//! The layer's input in the element type that a kernel is given.
//!
//! It must not change a value. Layer 5.

use crate::num::Dtype;
use half::f16;

/// The input's memory, sixteen bytes aligned.
#[derive(Debug)]
pub(super) struct Input {
    words: Vec<u128>,
    bytes: usize,
    dtype: Dtype,
}

impl Default for Input {
    fn default() -> Self {
        Input {
            words: Vec::new(),
            bytes: 0,
            dtype: Dtype::F32,
        }
    }
}

impl Input {
    /// Stores `x`: as `wanted` where every value survives it, else as f32. Without a wish, bfloat16 is
    /// tried: what stacks hold, and what a tensor core takes.
    pub(super) fn store(&mut self, x: &[f32], wanted: Option<Dtype>) {
        let dtype = match wanted.unwrap_or(Dtype::Bf16) {
            Dtype::Bf16 if x.iter().all(|v| v.to_bits() & 0xffff == 0) => Dtype::Bf16,
            Dtype::F16 if x.iter().all(survives_f16) => Dtype::F16,
            _ => Dtype::F32,
        };
        let bytes = match dtype {
            Dtype::F32 => x.len() * 4,
            _ => x.len() * 2,
        };
        self.words.clear();
        self.words.resize(bytes.div_ceil(16), 0);
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        (self.bytes, self.dtype) = (bytes, dtype);
        let body = &mut all[..bytes];
        match dtype {
            Dtype::F32 => body.copy_from_slice(bytemuck::cast_slice(x)),
            Dtype::F16 => {
                for (to, v) in body.chunks_exact_mut(2).zip(x) {
                    to.copy_from_slice(&f16::from_f32(*v).to_bits().to_ne_bytes());
                }
            }
            _ => {
                for (to, v) in body.chunks_exact_mut(2).zip(x) {
                    let [a, b] = ((v.to_bits() >> 16) as u16).to_ne_bytes();
                    to.copy_from_slice(&[a, b]);
                }
            }
        }
    }

    /// The type it is stored as.
    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}

fn survives_f16(v: &f32) -> bool {
    f16::from_f32(*v).to_f32().to_bits() == v.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_narrowed_only_where_nothing_is_lost() {
        let stored = |x: &[f32], wanted| {
            let mut input = Input::default();
            input.store(x, wanted);
            input.dtype()
        };
        assert_eq!(stored(&[1.0, -0.0, f32::INFINITY], None), Dtype::Bf16);
        assert_eq!(stored(&[1.0, 1.001], None), Dtype::F32);
        assert_eq!(stored(&[1.0, 1.000_976_6], Some(Dtype::F16)), Dtype::F16);
        assert_eq!(stored(&[70000.0], Some(Dtype::F16)), Dtype::F32);
        assert_eq!(stored(&[1.0], Some(Dtype::F32)), Dtype::F32);
        assert_eq!(stored(&[], None), Dtype::Bf16);
    }
}

//! Keeps the memory of tensors for the next ones: clearing it costs less than fresh pages do.
//!
//! It must not know what a tensor is for. Layer 3.

use super::{Logical, Tensor};

/// Stores of up to this many words (8 MiB) are kept; larger ones go back to the allocator.
const WORDS_MAX: usize = 1 << 20;

/// Spare memory, by the power of two that its size is.
#[derive(Debug, Default)]
pub struct Pool {
    sizes: Vec<Vec<Vec<u64>>>,
}

impl Pool {
    /// A tensor of zero bytes, in spare memory if there is some of its size.
    ///
    /// # Panics
    /// As [`Tensor::zeroed`].
    pub fn zeroed(&mut self, name: &'static str, shape: &[usize], bits: usize) -> Tensor {
        Tensor::zeroed_in(|words| self.store(words), name, shape, bits)
    }

    /// Takes a tensor's memory.
    pub fn keep(&mut self, tensor: Tensor) {
        let store = tensor.into_store();
        // Only what `store` made: its capacity is the power of two that it is found by.
        if store.capacity().is_power_of_two() && store.capacity() <= WORDS_MAX {
            let size = size_of(store.capacity());
            if self.sizes.len() <= size {
                self.sizes.resize_with(size + 1, Vec::new);
            }
            self.sizes[size].push(store);
        }
    }

    /// Takes the memory of a layer's logical tensors.
    pub fn keep_layer(&mut self, layer: Logical) {
        let Logical {
            x,
            router: _,
            w13,
            w2,
            w13_scale,
            w2_scale,
            w13_global,
            w2_global,
            w13_bias,
            w2_bias,
            x_scale: _,
            h_scale: _,
        } = layer;
        let optional = [
            w13_scale, w2_scale, w13_global, w2_global, w13_bias, w2_bias,
        ];
        for tensor in [x, w13, w2]
            .into_iter()
            .chain(optional.into_iter().flatten())
        {
            self.keep(tensor);
        }
    }

    /// Zero words.
    fn store(&mut self, words: usize) -> Vec<u64> {
        if words > WORDS_MAX {
            return vec![0; words];
        }
        let capacity = words.next_power_of_two();
        let mut store = self
            .sizes
            .get_mut(size_of(capacity))
            .and_then(Vec::pop)
            .unwrap_or_else(|| Vec::with_capacity(capacity));
        store.clear();
        store.resize(words, 0);
        store
    }
}

/// Binary logarithm of a power of two.
fn size_of(capacity: usize) -> usize {
    capacity.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_used_again_holds_no_trace_of_its_last_tensor() {
        let mut pool = Pool::default();
        for elements in [100, 90, 100, 3, 128] {
            let mut tensor = pool.zeroed("t", &[elements], 32);
            assert_eq!(tensor, Tensor::zeroed("t", &[elements], 32));
            tensor.bytes_mut().fill(0x5A);
            tensor.break_guard();
            pool.keep(tensor);
        }
    }

    #[test]
    fn large_memory_is_not_kept() {
        let mut pool = Pool::default();
        let tensor = pool.zeroed("t", &[WORDS_MAX], 64);
        pool.keep(tensor);
        assert!(pool.sizes.iter().all(Vec::is_empty));
    }
}

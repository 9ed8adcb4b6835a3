//! Says where choices come from: a counter-based generator, or a fuzzer's bytes.
//!
//! It must not know cases. Layer 8.

use crate::rng;

/// A stream of bounded choices.
pub(super) trait Source {
    /// A number below `count`, which is at least 1.
    fn below(&mut self, count: u64) -> u64;

    /// A number of the range, both ends included.
    fn within(&mut self, min: u64, max: u64) -> u64 {
        min + self.below(max - min + 1)
    }

    /// One of the list, which is not empty.
    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// True `part` times of `whole`.
    fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// Any 64 bits.
    fn bits(&mut self) -> u64 {
        self.within(0, u64::MAX - 1)
    }
}

/// Choices number 0, 1, 2 … of the stream `index` under `seed`: no state but the counter.
pub(super) struct Counter {
    pub(super) seed: u64,
    pub(super) index: u64,
    pub(super) next: u64,
}

impl Source for Counter {
    fn below(&mut self, count: u64) -> u64 {
        let value = rng::value(self.seed, self.index, self.next);
        self.next += 1;
        // The high half of a wide product: even enough, since every count here is far below 2^32
        // or, for seeds, a bias of one in 2^64 does not matter.
        ((u128::from(value) * u128::from(count)) >> 64) as u64
    }
}

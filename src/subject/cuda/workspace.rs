//! Memory that the kernels write: NaN before a launch, guards on both sides that are looked at after it.
//!
//! It must not know what the numbers mean. Layer 5.

use crate::subject::error::SubjectError;

/// What a guard holds; no kernel writes it by accident.
const GUARD: u8 = 0xC5;
/// Least bytes of a guard, and what they are a multiple of.
const GUARD_MIN: usize = 256;
/// Bytes of a word, to which everything is aligned.
const WORD: usize = 16;

/// One buffer.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    name: &'static str,
    words: Vec<u128>,
    /// Words of a guard.
    guard: usize,
    bytes: usize,
}

impl Buffer {
    /// Makes it `bytes` long, every byte `fill`, with guards of at least `guard` bytes, and of 256: a
    /// body on a device is then aligned as an allocation there.
    pub(super) fn reset(&mut self, name: &'static str, bytes: usize, guard: usize, fill: u8) {
        self.name = name;
        self.guard = guard.max(1).next_multiple_of(GUARD_MIN) / WORD;
        self.bytes = bytes;
        self.words.clear();
        self.words.resize(
            bytes.div_ceil(WORD) + 2 * self.guard,
            u128::from_ne_bytes([GUARD; WORD]),
        );
        self.bytes_mut().fill(fill);
    }

    fn start(&self) -> usize {
        self.guard * WORD
    }

    /// The body.
    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.start()..][..self.bytes]
    }

    /// The body, to be written.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, bytes) = (self.start(), self.bytes);
        &mut bytemuck::cast_slice_mut(&mut self.words)[start..][..bytes]
    }

    /// The body between its guards, as a device holds it, and where the body starts in it.
    #[cfg(feature = "cuda")]
    pub(super) fn image_mut(&mut self) -> (&mut [u8], usize) {
        let start = self.start();
        (bytemuck::cast_slice_mut(&mut self.words), start)
    }

    /// The body as floats.
    pub(super) fn floats(&self) -> &[f32] {
        bytemuck::cast_slice(self.bytes())
    }

    /// Where the body starts, for a kernel: sixteen bytes aligned.
    #[cfg(feature = "cuda-host")]
    pub(super) fn pointer(&mut self) -> *mut u8 {
        self.bytes_mut().as_mut_ptr()
    }

    /// Whether nothing was written beside the body.
    pub(super) fn check(&self, kernel: &'static str) -> Result<(), SubjectError> {
        let all: &[u8] = bytemuck::cast_slice(&self.words);
        let (head, rest) = all.split_at(self.start());
        let stray = head
            .iter()
            .chain(&rest[self.bytes..])
            .filter(|b| **b != GUARD)
            .count();
        if stray == 0 {
            return Ok(());
        }
        Err(SubjectError::Kernel {
            kernel,
            why: format!("{stray} bytes written outside {}", self.name),
        })
    }
}

/// A buffer of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Sorted,
    BlockExpert,
    Blocks,
    Needed,
    Done,
    Mid,
    Y,
    Out,
}

impl Slot {
    /// How many there are.
    pub(super) const COUNT: usize = 8;

    /// Whether the kernels write every byte of the one of that number, and the host looks at it.
    #[cfg(feature = "cuda")]
    pub(super) const fn is_whole(n: usize) -> bool {
        n == Slot::Done as usize || n == Slot::Out as usize
    }
}

/// Where kernels see each buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses(pub(super) [*mut u8; Slot::COUNT]);

impl Addresses {
    /// Where they see one.
    pub(super) fn of<T>(&self, slot: Slot) -> *mut T {
        self.0[slot as usize].cast()
    }
}

/// Everything that one rank's kernels write.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    buffers: [Buffer; Slot::COUNT],
}

impl Workspace {
    /// One buffer.
    pub(super) fn get(&self, slot: Slot) -> &Buffer {
        &self.buffers[slot as usize]
    }

    /// One buffer, to be set up.
    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut Buffer {
        &mut self.buffers[slot as usize]
    }

    /// Every buffer, in the order of [`Slot`].
    pub(super) fn all_mut(&mut self) -> &mut [Buffer; Slot::COUNT] {
        &mut self.buffers
    }

    /// Bytes of every buffer, guards included.
    pub(super) fn bytes(&self) -> usize {
        let words = self.buffers.iter().map(|buffer| buffer.words.len());
        words.sum::<usize>() * WORD
    }

    /// Looks at every guard.
    pub(super) fn check(&self, kernel: &'static str) -> Result<(), SubjectError> {
        self.buffers
            .iter()
            .try_for_each(|buffer| buffer.check(kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_beside_the_body_is_seen_and_one_inside_is_not() {
        let mut buffer = Buffer::default();
        buffer.reset("y", 40, 100, 0xff);
        assert!(buffer.floats().iter().all(|v| v.is_nan()));
        buffer.bytes_mut().fill(1);
        assert!(buffer.check("k").is_ok());
        let start = buffer.start();
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer.words);
        all[start + 40] = 0;
        let error = buffer.check("k").unwrap_err();
        assert_eq!(error.to_string(), "k: 1 bytes written outside y");
    }
}

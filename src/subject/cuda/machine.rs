//! What runs kernels: the CPU or a device.
//!
//! It must not decide what they are told. Layer 5.

use super::layer::Work;
use super::params::Fault;
use super::workspace::{Addresses, Workspace};
use crate::subject::error::{SkipReason, SubjectError};
use std::ops::Range;
use std::sync::MutexGuard;

/// What of a tensor of so many bytes kernels may read, asked only where nothing else is to lie there.
pub(super) type Reads<'a> = &'a dyn Fn(usize) -> Vec<Range<usize>>;

/// Every byte.
pub(super) fn every(bytes: usize) -> Vec<Range<usize>> {
    std::iter::once(0..bytes).collect()
}

/// Memory that kernels see, and a way to launch them.
pub(super) trait Machine {
    /// The name of the subject that runs on it.
    const NAME: &'static str;

    /// Whether it is there.
    fn available(&self) -> Result<(), SkipReason>;

    /// Is told the case that is asked about, to name it in errors.
    fn about(&mut self, _case: String) {}

    /// Keeps others off the machine until it is dropped, where they would share it.
    fn turn() -> Option<MutexGuard<'static, ()>> {
        None
    }

    /// Forgets what was placed for the launches before.
    fn clear(&mut self);

    /// Whether there is room for so many bytes in so many parts, before any is taken.
    fn room(&mut self, _bytes: u64, _parts: u64) -> Result<(), SubjectError> {
        Ok(())
    }

    /// Lets kernels read what `reads` says of `bytes`; where they see them, sixteen bytes aligned if `bytes`
    /// is, and until [`Machine::clear`]. The caller keeps `bytes` as long.
    fn place(&mut self, bytes: &[u8], reads: Reads<'_>) -> Result<*const u8, SubjectError>;

    /// Lets kernels write the workspace; where they see its buffers, until the launches have run.
    fn lend(&mut self, workspace: &mut Workspace) -> Result<Addresses, SubjectError>;

    /// Runs the launches that have blocks, in order, to their end; the workspace then holds what they wrote.
    ///
    /// # Safety
    /// Every pointer of `work.params` must be null, or one that this machine's `place` or `lend` gave since
    /// the last `clear`, for memory that is still there, as long as a kernel reaches from it with the sizes
    /// in `work`, and aligned as its type asks.
    #[expect(unsafe_code, reason = "the kernels trust what they are told")]
    unsafe fn run(
        &mut self,
        work: &Work<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), SubjectError>;

    /// The fault that is planted.
    fn fault(&self) -> Fault {
        Fault::None
    }
}

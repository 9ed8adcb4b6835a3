//! The subject `cuda`: the kernels on a device, and how fast they are there.
//!
//! It must not know how they are run. Layer 5.

use super::device::Device;
use super::launch::{KernelOptions, Launched};
use super::nvrtc::source_hash;
use super::opened::{self, CompilerFacts, DeviceFacts};
use super::run::{Kernels, subject_by_kernels};
use crate::case::Case;
use crate::layout::PackedInputs;
use crate::num::Dtype;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::subject::api::Subject;
use crate::subject::error::{SkipReason, SubjectError};
use crate::tensor::Output;

/// The subject `cuda`: the kernels of `kernels/moe.cu` on the first device that the driver shows,
/// compiled for it at run time. Without one it skips, and says why.
///
/// What kernels read lies between NaN there, and what they write starts as NaN between guards.
#[derive(Debug, Default)]
pub struct Cuda {
    kernels: Kernels<Device>,
}

subject_by_kernels!(Cuda);

impl Cuda {
    /// The subject.
    pub fn new() -> Cuda {
        Cuda::default()
    }

    /// The subject, run in another way.
    pub fn with(options: KernelOptions) -> Cuda {
        Cuda {
            kernels: Kernels::on(Device::default(), options),
        }
    }

    /// The same with every tensor in an allocation of its exact size that holds nothing but what kernels may
    /// read, for tools that watch addresses (`.ci/compute-sanitizer`): no guards, no NaN around, no NaN in
    /// what is written.
    #[must_use]
    pub fn bare(mut self) -> Cuda {
        self.kernels.machine.bare = true;
        self
    }

    /// What the last layer launched, rank by rank.
    pub fn launched(&self) -> &[Launched] {
        &self.kernels.launched
    }

    /// What compiles for the device.
    ///
    /// # Errors
    /// Why there is no device, or no compiler.
    pub fn compiler() -> Result<CompilerFacts, SkipReason> {
        opened::compiler()
    }

    /// The first 16 hexadecimal digits of the BLAKE3 digest of the kernels' source.
    pub fn kernel_hash() -> String {
        source_hash()
    }

    /// What the device is.
    ///
    /// # Errors
    /// Why there is none, or none that will do.
    pub fn facts() -> Result<&'static DeviceFacts, SkipReason> {
        opened::opened().map(|device| &device.facts)
    }

    /// Compiles the kernels of two element types for an architecture, such as `sm_90a`; no device is
    /// needed.
    ///
    /// # Errors
    /// Why there is no compiler, or what it says.
    pub fn compile(arch: &str, inputs: Dtype, weights: Dtype) -> Result<Vec<u8>, SubjectError> {
        opened::compile(arch, inputs, weights)
    }

    /// Runs the layer, then each rank's launches `repeats` times more with cold caches: the output, and
    /// how long each took (seconds), rank by rank.
    ///
    /// # Errors
    /// As [`Subject::run`].
    pub fn time(
        &mut self,
        plan: &Plan,
        inputs: &PackedInputs,
        repeats: usize,
    ) -> Result<(Output, Vec<f64>), SubjectError> {
        self.kernels.machine.repeats = repeats;
        let ran = self.run(plan, inputs);
        self.kernels.machine.repeats = 0;
        let seconds = std::mem::take(&mut self.kernels.machine.seconds);
        ran.map(|output| (output, seconds))
    }

    /// Bytes a second that a copy within the device's memory reads and writes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy_rate(&mut self) -> Result<f64, SubjectError> {
        self.kernels.machine.copy_rate()
    }

    /// Operations a second of the tensor-core instruction that the kernels use, on registers alone.
    ///
    /// # Errors
    /// What the driver or the compiler says.
    pub fn mma_rate(&mut self) -> Result<f64, SubjectError> {
        self.kernels.machine.mma_rate()
    }
}

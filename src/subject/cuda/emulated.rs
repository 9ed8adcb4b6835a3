//! The subject `cuda-host`: the kernels on the CPU, run in any order of turns, with any planted fault.
//!
//! It must not know how they are run. Layer 5.

use super::host::{self, Adder, Host, Turns};
use super::launch::{KernelOptions, Launched, Paths};
use super::params::Fault;
use super::record::Record;
use super::run::{Kernels, subject_by_kernels};
use crate::case::Case;
use crate::layout::PackedInputs;
use crate::num::Dtype;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::subject::api::Subject;
use crate::subject::error::{SkipReason, SubjectError};
use crate::tensor::Output;

/// The subject `cuda-host`: the kernels of `kernels/moe.cu` on the CPU, one fiber a CUDA thread.
#[derive(Debug, Default)]
pub struct CudaHost {
    kernels: Kernels<Host>,
}

subject_by_kernels!(CudaHost);

/// How the kernels are run on the CPU; whatever is chosen but the adder, the bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostOptions {
    /// Which path.
    pub paths: Paths,
    /// In which order blocks and threads run.
    pub turns: Turns,
    /// How `mma.sync` adds.
    pub adder: Adder,
    /// The fault that is planted. What it reads or writes beyond a buffer is memory kept for that.
    pub fault: Fault,
    /// Element type of the input where its values allow it; bfloat16 if left out.
    pub inputs: Option<Dtype>,
    /// Whether a rank sees -1 for experts that others hold, as expert-parallel dispatch writes it,
    /// instead of their ids.
    pub masked: bool,
}

impl CudaHost {
    /// The subject, forward and without a fault.
    pub fn new() -> CudaHost {
        CudaHost::default()
    }

    /// The subject, run in another way.
    pub fn with(options: HostOptions) -> CudaHost {
        let HostOptions {
            paths,
            turns,
            adder,
            fault,
            inputs,
            masked,
        } = options;
        let options = KernelOptions {
            paths,
            inputs,
            masked,
        };
        CudaHost {
            kernels: Kernels::on(Host::new(turns, adder, fault), options),
        }
    }

    /// The same with NaN bytes wherever kernels may not read: what the subject `cuda` leaves unwritten for tools that
    /// watch addresses.
    #[must_use]
    pub fn bare(mut self) -> CudaHost {
        self.kernels.machine.bare = true;
        self
    }

    /// What the last layer launched, rank by rank.
    pub fn launched(&self) -> &[Launched] {
        &self.kernels.launched
    }

    /// Runs the layer and writes down every launch with the output it gave, for
    /// `kernels/host/main.cpp`, which is to run them again with `fault` planted.
    ///
    /// # Errors
    /// As [`Subject::run`].
    pub fn record(
        &mut self,
        plan: &Plan,
        inputs: &PackedInputs,
        fault: Fault,
    ) -> Result<Vec<u8>, SubjectError> {
        self.kernels.machine.record = Some(Record::new(fault));
        let ran = self.run(plan, inputs);
        let record = self.kernels.machine.record.take().unwrap_or_default();
        ran.map(|_| record.into_bytes())
    }

    /// Whether the kernels were compiled, and run here.
    ///
    /// # Errors
    /// The reason why not.
    pub fn available() -> Result<(), SkipReason> {
        host::available()
    }
}

//! Computes the layer from padded, sharded, packed bytes, as a kernel would.
//!
//! It must not call `reference`, nor look at logical ranges to leave padding out. Layer 5.

mod api;
mod choice;
mod cpu;
#[cfg(any(feature = "cuda", feature = "cuda-host"))]
mod cuda;
mod error;
mod order;
mod process;

pub use api::{Allocated, None, Subject, none};
pub use choice::SubjectChoice;
pub use cpu::{Cpu, SIGMOID_ERROR_ULP, exp};
#[cfg(feature = "cuda-host")]
pub use cuda::{Adder, CudaHost, HostMma, HostNumber, HostOptions, Turns, host_far_apart};
#[cfg(feature = "cuda")]
pub use cuda::{CompilerFacts, Cuda, DeviceFacts, seek_nvrtc};
#[cfg(any(feature = "cuda", feature = "cuda-host"))]
pub use cuda::{Fault, KernelOptions, Launched, Paths};
pub use error::{Misbehaviour, NoCompiler, NoDevice, SkipReason, SubjectError};
pub use order::{Axis, BlackBox, BoxError, Known, Orders, Revealed, Setup, orders};
pub use process::{GRANULES, Limits, PROTOCOL, Process, Program, Running, SIZES, Supports, WORDS};

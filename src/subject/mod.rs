//! Computes the layer from padded, sharded, packed bytes, as a kernel would.
//!
//! It must not call `reference`, nor look at logical ranges to leave padding out. Layer 5.

mod api;
mod choice;
mod cpu;
#[cfg(feature = "cuda-host")]
mod cuda;
mod error;
mod process;

pub use api::{None, Subject, none};
pub use choice::SubjectChoice;
pub use cpu::{Cpu, SIGMOID_ERROR_ULP, exp};
#[cfg(feature = "cuda-host")]
pub use cuda::{CudaHost, Fault, HostNumber, HostOptions, Paths, Turns};
pub use error::{Misbehaviour, SkipReason, SubjectError};
pub use process::{GRANULES, PROTOCOL, Process, Program, SIZES, Supports, WORDS};

//! The CUDA kernels of `kernels/` as subjects: on the CPU, one fiber a CUDA thread.

mod emulated;
mod host;
mod input;
mod launch;
mod layer;
mod limits;
mod machine;
mod params;
mod rank;
mod record;
mod run;
mod workspace;

pub use emulated::{CudaHost, HostOptions};
pub use host::{HostNumber, Turns};
pub use launch::Paths;
pub use params::Fault;

//! The CUDA kernels of `kernels/` as subjects: on the CPU, one fiber a CUDA thread.

mod host;
mod input;
mod limits;
mod params;
mod rank;
mod record;
mod run;
mod workspace;

pub use host::{HostNumber, Turns};
pub use params::Fault;
pub use run::{CudaHost, HostOptions, Paths};

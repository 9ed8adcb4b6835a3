//! The CUDA kernels of `kernels/` as subjects: on the CPU, one fiber a CUDA thread, and on a device.

#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda-host")]
mod emulated;
#[cfg(feature = "cuda-host")]
mod host;
mod input;
mod launch;
mod layer;
mod limits;
mod machine;
#[cfg(feature = "cuda")]
mod nvrtc;
#[cfg(feature = "cuda")]
mod on_device;
#[cfg(feature = "cuda")]
mod opened;
mod params;
mod rank;
#[cfg(feature = "cuda")]
mod rates;
mod reads;
#[cfg(feature = "cuda-host")]
mod record;
mod run;
#[cfg(feature = "cuda")]
mod versions;
mod workspace;

#[cfg(feature = "cuda-host")]
pub use emulated::{CudaHost, HostOptions};
#[cfg(feature = "cuda-host")]
pub use host::{Adder, HostMma, HostNumber, Turns, host_far_apart};
pub use launch::{KernelOptions, Launched, Paths};
#[cfg(feature = "cuda")]
pub use nvrtc::seek_nvrtc;
#[cfg(feature = "cuda")]
pub use on_device::Cuda;
#[cfg(feature = "cuda")]
pub use opened::{CompilerFacts, DeviceFacts};
pub use params::Fault;

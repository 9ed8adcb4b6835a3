//! What a device can do at most, measured: a copy's bytes and the tensor core's operations.
//!
//! It must not know layers. Layer 5.

use super::device::{Device, SWEEP};
use super::nvrtc::{CEILING, MOE};
use super::opened::{failed, opened};
use crate::subject::error::SubjectError;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};

impl Device {
    /// Bytes a second that a copy on the device reads and writes, the best of a few.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn copy_rate(&mut self) -> Result<f64, SubjectError> {
        let failed = |call| failed("copy", call);
        let device = opened()?;
        let _turn = device.turn();
        let stream = self.stream()?;
        let from = stream
            .alloc_zeros::<u8>(SWEEP)
            .map_err(failed("cuMemAlloc"))?;
        let mut to = stream
            .alloc_zeros::<u8>(SWEEP)
            .map_err(failed("cuMemAlloc"))?;
        let best = self.best(&stream, 20, || {
            stream
                .memcpy_dtod(&from, &mut to)
                .map_err(failed("cuMemcpyDtoD"))
        })?;
        Ok(2.0 * SWEEP as f64 / best)
    }

    /// Operations a second of mma.sync with bfloat16 on registers alone, the best of a few.
    ///
    /// # Errors
    /// What the driver or the compiler says.
    #[expect(unsafe_code, reason = "a launch")]
    pub(super) fn mma_rate(&mut self) -> Result<f64, SubjectError> {
        const KERNEL: &str = "pp_rate";
        /// Blocks: several for every multiprocessor there is.
        const BLOCKS: u32 = 2048;
        const THREADS: u32 = 256;
        const TURNS: i32 = 2048;
        /// Products a turn of a warp (kernels/ceiling.cu).
        const PRODUCTS: f64 = 8.0;
        let failed = |call| failed(KERNEL, call);
        let device = opened()?;
        let _turn = device.turn();
        let stream = self.stream()?;
        let module = device.module(&CEILING, (0, 0), &[])?;
        let function = module
            .load_function(KERNEL)
            .map_err(failed("cuModuleGetFunction"))?;
        let threads = (BLOCKS * THREADS) as usize;
        let mut out = stream
            .alloc_zeros::<f32>(threads)
            .map_err(failed("cuMemAlloc"))?;
        let config = LaunchConfig {
            grid_dim: (BLOCKS, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let best = self.best(&stream, 10, || {
            let mut builder = stream.launch_builder(&function);
            builder.arg(&mut out).arg(&TURNS);
            // SAFETY: the kernel takes a float for every thread, and a number.
            unsafe { builder.launch(config) }
                .map(drop)
                .map_err(failed("cuLaunchKernel"))
        })?;
        let warps = f64::from(BLOCKS * THREADS / 32);
        let operations = 2.0 * 16.0 * 8.0 * 16.0;
        Ok(warps * f64::from(TURNS) * PRODUCTS * operations / best)
    }

    /// The shortest time of several (seconds).
    fn best(
        &self,
        stream: &CudaStream,
        times: usize,
        mut work: impl FnMut() -> Result<(), SubjectError>,
    ) -> Result<f64, SubjectError> {
        let mut best = f64::INFINITY;
        for _ in 0..times {
            best = best.min(seconds(stream, &mut work)?);
        }
        Ok(best)
    }
}

/// How long the device takes for what `work` hands it (seconds).
pub(super) fn seconds(
    stream: &CudaStream,
    work: impl FnOnce() -> Result<(), SubjectError>,
) -> Result<f64, SubjectError> {
    let failed = |call| failed(MOE.name, call);
    let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream
        .record_event(timed)
        .map_err(failed("cuEventRecord"))?;
    work()?;
    let end = stream
        .record_event(timed)
        .map_err(failed("cuEventRecord"))?;
    let ms = start
        .elapsed_ms(&end)
        .map_err(failed("cuEventElapsedTime"))?;
    Ok(f64::from(ms) / 1e3)
}

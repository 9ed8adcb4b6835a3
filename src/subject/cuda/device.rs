//! A device as a machine for the kernels, through its driver, loaded at run time.
//!
//! It must not decide sizes: what it launches, `layer` has checked. Layer 5.

use super::launch::{Kernel, Launch};
use super::layer::Work;
use super::machine::{Machine, Reads};
use super::nvrtc::{CEILING, MOE};
use super::opened::{compiler, failed, opened};
use super::params::Params;
use super::rates::seconds;
use super::workspace::{Addresses, Slot, Workspace};
use crate::subject::error::{SkipReason, SubjectError};
use cudarc::driver::{
    CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg, result,
};
use std::ptr::without_provenance_mut;
use std::sync::{Arc, MutexGuard};

/// Bytes around what kernels read; NaN in every element type that has one.
const MARGIN: usize = 256;
/// What an allocation may take beyond its bytes: to the next multiple of what a driver hands out.
const GRANULE: u64 = 512;

/// What a launch is told, as the driver takes it.
#[repr(transparent)]
struct Argument(Params);

// SAFETY: a structure of numbers and addresses, laid out as C does, which the kernels declare alike
// (kernels/params.h).
#[expect(unsafe_code, reason = "the driver copies it")]
unsafe impl DeviceRepr for Argument {}

/// The device, with what lies on it for one rank's launches.
#[derive(Debug, Default)]
pub(super) struct Device {
    stream: Option<Arc<CudaStream>>,
    read: Vec<CudaSlice<u8>>,
    written: Vec<CudaSlice<u8>>,
    /// How often launches are run again to be timed, and how long each took (seconds).
    pub(super) repeats: usize,
    pub(super) seconds: Vec<f64>,
    /// Read between two repeats, so that they find caches cold, and without lines that wait to be written back.
    sweep: Option<CudaSlice<u8>>,
    /// Whether tensors lie in allocations of their exact size, and only what kernels may read is written
    /// there: for tools that watch addresses.
    pub(super) bare: bool,
    /// The case that is asked about, where it is known.
    case: String,
}

/// Bytes that no device's caches hold.
pub(super) const SWEEP: usize = 512 << 20;

impl Device {
    /// This subject's own stream.
    pub(super) fn stream(&mut self) -> Result<Arc<CudaStream>, SubjectError> {
        if let Some(stream) = &self.stream {
            return Ok(Arc::clone(stream));
        }
        let stream = opened()?
            .context
            .new_stream()
            .map_err(failed(MOE.name, "cuStreamCreate"))?;
        Ok(Arc::clone(self.stream.insert(stream)))
    }

    /// Puts one kernel into the stream.
    ///
    /// # Safety
    /// That of [`Machine::run`].
    #[expect(unsafe_code, reason = "the kernels trust what they are told")]
    unsafe fn launch(
        stream: &CudaStream,
        launch: &Launch,
        function: &CudaFunction,
        argument: &Argument,
    ) -> Result<(), SubjectError> {
        let kernel = launch.kernel.name();
        let shared = u32::try_from(launch.shared).map_err(|_| SubjectError::Device {
            kernel,
            call: "cuLaunchKernel",
            why: format!("{} bytes of shared memory", launch.shared),
        })?;
        let config = LaunchConfig {
            grid_dim: (launch.grid.0, launch.grid.1, 1),
            block_dim: (launch.kernel.threads(), 1, 1),
            shared_mem_bytes: shared,
        };
        // SAFETY: the kernel takes one argument, of this type; what it leads to, the caller promises.
        unsafe { stream.launch_builder(function).arg(argument).launch(config) }
            .map(drop)
            .map_err(failed(kernel, "cuLaunchKernel"))
    }

    /// Runs the launches once, each to its end, so that an error is of the kernel that it names.
    ///
    /// # Safety
    /// That of [`Machine::run`].
    #[expect(unsafe_code, reason = "the kernels trust what they are told")]
    unsafe fn once(
        stream: &CudaStream,
        kernels: &[(&Launch, CudaFunction)],
        argument: &Argument,
    ) -> Result<(), SubjectError> {
        for (launch, function) in kernels {
            // SAFETY: what the caller promises of the work.
            unsafe { Self::launch(stream, launch, function, argument) }?;
            stream
                .synchronize()
                .map_err(failed(launch.kernel.name(), "cuStreamSynchronize"))?;
        }
        Ok(())
    }

    /// Runs the launches again and again and keeps how long they took.
    ///
    /// # Safety
    /// That of [`Machine::run`].
    #[expect(unsafe_code, reason = "the kernels trust what they are told")]
    unsafe fn time(
        &mut self,
        stream: &Arc<CudaStream>,
        kernels: &[(&Launch, CudaFunction)],
        argument: &Argument,
    ) -> Result<(), SubjectError> {
        for _ in 0..self.repeats {
            self.chill(stream)?;
            let took = seconds(stream, || {
                kernels.iter().try_for_each(|(launch, function)| {
                    // SAFETY: what the caller promises; a layer's launches leave what they need as it was.
                    unsafe { Self::launch(stream, launch, function, argument) }
                })
            })?;
            self.seconds.push(took);
        }
        Ok(())
    }

    /// Reads more than caches hold.
    #[expect(unsafe_code, reason = "a launch")]
    fn chill(&mut self, stream: &Arc<CudaStream>) -> Result<(), SubjectError> {
        const KERNEL: &str = "pp_sweep";
        const COUNT: i32 = (SWEEP / 16) as i32;
        let failed = |call| failed(KERNEL, call);
        let sweep = match self.sweep.take() {
            Some(sweep) => sweep,
            None => stream
                .alloc_zeros(SWEEP + 16)
                .map_err(failed("cuMemAlloc"))?,
        };
        let sweep = self.sweep.insert(sweep);
        let function = opened()?
            .module(&CEILING, (0, 0), &[])?
            .load_function(KERNEL)
            .map_err(failed("cuModuleGetFunction"))?;
        let config = LaunchConfig {
            grid_dim: (2048, 1, 1),
            block_dim: (256, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut builder = stream.launch_builder(&function);
        builder.arg(sweep).arg(&COUNT);
        // SAFETY: the kernel reads sixteen bytes as often as it is told, all zeros, and could write as many behind them.
        unsafe { builder.launch(config) }
            .map(drop)
            .map_err(failed("cuLaunchKernel"))
    }

    /// Memory of that size on the device, and where it lies there: from the driver's pool, or, for tools that watch
    /// addresses, an allocation of its own.
    #[expect(unsafe_code, reason = "it holds nothing yet")]
    fn reserve(
        &self,
        stream: &Arc<CudaStream>,
        bytes: usize,
    ) -> Result<(CudaSlice<u8>, *mut u8), SubjectError> {
        const CALL: &str = "cuMemAlloc";
        // No allocation is empty.
        let bytes = bytes.max(1);
        let slice = if self.bare {
            let bound = stream.context().bind_to_thread();
            bound
                // SAFETY: a size that is not zero.
                .and_then(|()| unsafe { result::malloc_sync(bytes) })
                // SAFETY: the address is of so many bytes; any byte is one; nothing here reads them before a copy
                // or a kernel wrote them. `forget` gives them back as they were taken.
                .map(|at| unsafe { stream.upgrade_device_ptr::<u8>(at, bytes) })
        } else {
            // SAFETY: any byte is one; nothing here reads them before a copy or a kernel wrote them.
            unsafe { stream.alloc::<u8>(bytes) }
        };
        let slice = slice.map_err(failed(MOE.name, CALL))?;
        let address = slice.device_ptr(stream).0;
        let address = usize::try_from(address).map_err(|_| SubjectError::Device {
            kernel: MOE.name,
            call: CALL,
            why: format!("the address {address:#x} leaves this machine's"),
        })?;
        Ok((slice, without_provenance_mut(address)))
    }

    /// Gives memory back as it was taken.
    #[expect(unsafe_code, reason = "the driver is C")]
    fn forget(&self, slice: CudaSlice<u8>) {
        if self.bare {
            let at = slice.leak();
            // An error is of an earlier launch, which is told by whoever waited for it.
            // SAFETY: `reserve` took it by itself, and nothing holds it any more: what ran was waited for.
            let _ = unsafe { result::free_sync(at) };
        }
    }

    /// Copies bytes to the place `from` of memory on the device.
    fn upload(
        stream: &Arc<CudaStream>,
        bytes: &[u8],
        to: &mut CudaSlice<u8>,
        from: usize,
    ) -> Result<(), SubjectError> {
        if bytes.is_empty() {
            return Ok(());
        }
        stream
            .memcpy_htod(bytes, &mut to.slice_mut(from..from + bytes.len()))
            .map_err(failed(MOE.name, "cuMemcpyHtoD"))
    }

    /// What the launches wrote, back in the workspace.
    fn download(
        &self,
        stream: &Arc<CudaStream>,
        workspace: &mut Workspace,
    ) -> Result<(), SubjectError> {
        for (n, (slice, buffer)) in self.written.iter().zip(workspace.all_mut()).enumerate() {
            let to = match self.bare {
                // Others hold bytes that no kernel writes, which a watching tool takes amiss.
                true if !Slot::is_whole(n) || buffer.bytes().is_empty() => continue,
                true => buffer.bytes_mut(),
                false => buffer.image_mut().0,
            };
            stream
                .memcpy_dtoh(&slice.slice(..to.len()), to)
                .and_then(|()| stream.synchronize())
                .map_err(failed(Kernel::Second.name(), "cuMemcpyDtoH"))?;
        }
        Ok(())
    }
}

impl Machine for Device {
    const NAME: &'static str = "cuda";

    fn available(&self) -> Result<(), SkipReason> {
        compiler().map(drop)
    }

    fn about(&mut self, case: String) {
        self.case = case;
    }

    fn turn() -> Option<MutexGuard<'static, ()>> {
        opened().ok().map(|device| device.turn())
    }

    fn clear(&mut self) {
        let all: Vec<_> = self.read.drain(..).chain(self.written.drain(..)).collect();
        all.into_iter().for_each(|slice| self.forget(slice));
    }

    fn room(&mut self, bytes: u64, parts: u64) -> Result<(), SubjectError> {
        // What was freed in a stream's order, of this subject or another, counts as free once it has come there.
        opened()?
            .context
            .synchronize()
            .map_err(failed(MOE.name, "cuCtxSynchronize"))?;
        let (free, _) = opened()?
            .context
            .mem_get_info()
            .map_err(failed(MOE.name, "cuMemGetInfo"))?;
        let free = u64::try_from(free).unwrap_or(u64::MAX);
        let around = if self.bare { 0 } else { 2 * MARGIN as u64 };
        let bytes = bytes.saturating_add(parts.saturating_mul(around + GRANULE));
        if bytes > free {
            return Err(SubjectError::Skipped(SkipReason::TooLarge {
                what: "device memory",
                bytes,
                limit: free,
            }));
        }
        Ok(())
    }

    fn place(&mut self, bytes: &[u8], reads: Reads<'_>) -> Result<*const u8, SubjectError> {
        let stream = self.stream()?;
        let (slice, at) = if self.bare {
            let (mut slice, at) = self.reserve(&stream, bytes.len())?;
            for range in reads(bytes.len()) {
                Device::upload(&stream, &bytes[range.clone()], &mut slice, range.start)?;
            }
            (slice, at)
        } else {
            let mut image = vec![0xff; bytes.len() + 2 * MARGIN];
            image[MARGIN..][..bytes.len()].copy_from_slice(bytes);
            let (mut slice, at) = self.reserve(&stream, image.len())?;
            Device::upload(&stream, &image, &mut slice, 0)?;
            // The image is dropped here: the copy must have left it.
            stream
                .synchronize()
                .map_err(failed(MOE.name, "cuStreamSynchronize"))?;
            (slice, at.wrapping_add(MARGIN))
        };
        self.read.push(slice);
        Ok(at.cast_const())
    }

    fn lend(&mut self, workspace: &mut Workspace) -> Result<Addresses, SubjectError> {
        let stream = self.stream()?;
        let mut all = [std::ptr::null_mut(); Slot::COUNT];
        for (n, (buffer, to)) in workspace.all_mut().iter_mut().zip(&mut all).enumerate() {
            let (mut slice, at) = if self.bare {
                self.reserve(&stream, buffer.bytes().len())?
            } else {
                let (image, start) = buffer.image_mut();
                let (slice, at) = self.reserve(&stream, image.len())?;
                (slice, at.wrapping_add(start))
            };
            match self.bare {
                false => Device::upload(&stream, buffer.image_mut().0, &mut slice, 0)?,
                true if n == Slot::Done as usize => {
                    Device::upload(&stream, buffer.bytes(), &mut slice, 0)?;
                }
                true => {}
            }
            self.written.push(slice);
            *to = at;
        }
        Ok(Addresses(all))
    }

    #[expect(unsafe_code, reason = "the kernels trust what they are told")]
    unsafe fn run(
        &mut self,
        work: &Work<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), SubjectError> {
        let (device, stream) = (opened()?, self.stream()?);
        let argument = Argument(work.params);
        let mut kernels = Vec::with_capacity(work.launches.len());
        for launch in work.launches.iter().filter(|launch| launch.has_blocks()) {
            kernels.push((launch, device.function(launch)?));
        }
        // SAFETY: what the caller promises of the work; the buffers are there until `clear`.
        let ran = unsafe { Self::once(&stream, &kernels, &argument) }
            // SAFETY: as before.
            .and_then(|()| unsafe { self.time(&stream, &kernels, &argument) })
            // Of the last repeat, where there are any: they are held to the same checks.
            .and_then(|()| self.download(&stream, workspace))
            .and_then(|()| {
                let earlier = device.context.check_err();
                earlier.map_err(failed(Kernel::Second.name(), "an earlier call"))
            });
        if let Err(error) = &ran {
            device.mourn(error, &self.case);
        }
        ran
    }
}

//! A device as a machine for the kernels, through its driver, loaded at run time.
//!
//! It must not decide sizes: what it launches, `layer` has checked. Layer 5.

use super::launch::{Kernel, Launch};
use super::layer::Work;
use super::machine::Machine;
use super::nvrtc::{self, CEILING, MOE, Source};
use super::params::{Params, element};
use super::workspace::{Addresses, Slot, Workspace};
use crate::num::Dtype;
use crate::subject::error::{SkipReason, SubjectError};
use cudarc::driver::sys::{self, CUevent_flags};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
    DriverError, LaunchConfig, PushKernelArg, result,
};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes around what kernels read; NaN in every element type that has one.
const MARGIN: usize = 256;
/// Least compute capability: what mma.sync of bfloat16 and cp.async ask for.
const LEAST: (i32, i32) = (8, 0);

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// The architecture that kernels are compiled for.
    pub arch: String,
    /// Its memory (bytes).
    pub memory: u64,
    /// The CUDA version that the driver knows.
    pub driver: (i32, i32),
    /// NVRTC's version.
    pub nvrtc: (i32, i32),
}

/// A kernel's module: what its source is, and the element types it is compiled for.
type Key = (&'static str, i32, i32);

/// The one device of this process: the first that the driver shows (CUDA_VISIBLE_DEVICES chooses).
struct Opened {
    context: Arc<CudaContext>,
    facts: DeviceFacts,
    modules: Mutex<HashMap<Key, Arc<CudaModule>>>,
}

/// The device.
///
/// # Errors
/// Why there is none, or none that will do.
fn opened() -> Result<&'static Opened, SkipReason> {
    static OPENED: OnceLock<Result<Opened, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(try_open);
    opened
        .as_ref()
        .map_err(|why| SkipReason::NoDevice(why.clone()))
}

#[expect(unsafe_code, reason = "the driver is C")]
fn try_open() -> Result<Opened, String> {
    // Anything else panics where there is no driver.
    // SAFETY: it loads NVIDIA's driver, whose initialisers ask nothing of their caller.
    if !unsafe { sys::is_culib_present() } {
        return Err("libcuda is not found: no NVIDIA driver".to_owned());
    }
    let of = |call: &'static str| move |error: DriverError| format!("{call}: {}", words(error));
    result::init().map_err(of("cuInit"))?;
    let mut version = 0;
    // SAFETY: it writes a number.
    let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    code.result().map_err(of("cuDriverGetVersion"))?;
    let driver = (version / 1000, version % 1000 / 10);
    if version < 12_000 {
        return Err(format!(
            "the driver knows CUDA {}.{}; it must know 12.0",
            driver.0, driver.1
        ));
    }
    if result::device::get_count().map_err(of("cuDeviceGetCount"))? == 0 {
        return Err("the driver shows none".to_owned());
    }
    let context = CudaContext::new(0).map_err(of("cuDevicePrimaryCtxRetain"))?;
    let name = context.name().map_err(of("cuDeviceGetName"))?;
    let memory = context.total_mem().map_err(of("cuDeviceTotalMem"))?;
    let capability = context
        .compute_capability()
        .map_err(of("cuDeviceGetAttribute"))?;
    let (major, minor) = capability;
    if capability < LEAST {
        return Err(format!(
            "{name} is sm_{major}{minor}; the kernels need sm_80"
        ));
    }
    // As CI compiles them.
    let suffix = if major >= 9 { "a" } else { "" };
    Ok(Opened {
        facts: DeviceFacts {
            name,
            arch: format!("sm_{major}{minor}{suffix}"),
            memory: u64::try_from(memory).unwrap_or(u64::MAX),
            driver,
            nvrtc: nvrtc::version()?,
        },
        context,
        modules: Mutex::default(),
    })
}

/// What the device is.
///
/// # Errors
/// Why there is none, or none that will do.
pub(super) fn facts() -> Result<&'static DeviceFacts, SkipReason> {
    Ok(&opened()?.facts)
}

/// Compiles the kernels of two element types for an architecture, without a device.
///
/// # Errors
/// Why there is no compiler, or what it says.
pub(super) fn compile(arch: &str, inputs: Dtype, weights: Dtype) -> Result<Vec<u8>, SubjectError> {
    let (a, w) = codes(inputs, weights)?;
    nvrtc::cubin(&MOE, arch, &[format!("-DPP_A={a}"), format!("-DPP_W={w}")])
}

fn codes(inputs: Dtype, weights: Dtype) -> Result<(i32, i32), SubjectError> {
    let known = |dtype| {
        element(dtype).ok_or_else(|| SubjectError::Device {
            kernel: MOE.name,
            call: "compile",
            why: format!("no kernel for {dtype}"),
        })
    };
    Ok((known(inputs)?, known(weights)?))
}

impl Opened {
    /// A kernel, compiled if it was not yet.
    fn function(&self, launch: &Launch) -> Result<CudaFunction, SubjectError> {
        let kernel = launch.kernel.name();
        let (a, w) = codes(launch.inputs, launch.weights)?;
        let path = match (launch.kernel, launch.fast) {
            (Kernel::Align, _) => "",
            (_, true) => "_fast",
            (_, false) => "_general",
        };
        let defines = [format!("-DPP_A={a}"), format!("-DPP_W={w}")];
        let module = self.module(&MOE, (a, w), &defines)?;
        module
            .load_function(&format!("{kernel}{path}_{a}_{w}"))
            .map_err(failed(kernel, "cuModuleGetFunction"))
    }

    fn module(
        &self,
        source: &'static Source,
        (a, w): (i32, i32),
        defines: &[String],
    ) -> Result<Arc<CudaModule>, SubjectError> {
        let key = (source.name, a, w);
        // A panic in between leaves whole modules.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        let cubin = nvrtc::cubin(source, &self.facts.arch, defines)?;
        let module = self
            .context
            .load_module(Ptx::from_binary(cubin))
            .map_err(failed(source.name, "cuModuleLoadData"))?;
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}

fn words(error: DriverError) -> String {
    let text = |text: Result<&std::ffi::CStr, DriverError>| {
        text.map_or_else(|_| "?".to_owned(), |t| t.to_string_lossy().into_owned())
    };
    format!(
        "{} ({})",
        text(error.error_name()),
        text(error.error_string())
    )
}

fn failed(kernel: &'static str, call: &'static str) -> impl Fn(DriverError) -> SubjectError + Copy {
    move |error| SubjectError::Device {
        kernel,
        call,
        why: words(error),
    }
}

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
    /// Written between two repeats, so that they find caches cold.
    sweep: Option<CudaSlice<u8>>,
}

/// Bytes that no device's caches hold.
const SWEEP: usize = 512 << 20;

impl Device {
    /// This subject's own stream.
    fn stream(&mut self) -> Result<Arc<CudaStream>, SubjectError> {
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
        let failed = |call| failed(MOE.name, call);
        if self.sweep.is_none() {
            let sweep = stream.alloc_zeros(SWEEP).map_err(failed("cuMemAlloc"))?;
            self.sweep = Some(sweep);
        }
        for _ in 0..self.repeats {
            if let Some(sweep) = &mut self.sweep {
                stream.memset_zeros(sweep).map_err(failed("cuMemsetD8"))?;
            }
            let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
            let start = stream
                .record_event(timed)
                .map_err(failed("cuEventRecord"))?;
            for (launch, function) in kernels {
                // SAFETY: what the caller promises; a layer's launches leave what they need as it was.
                unsafe { Self::launch(stream, launch, function, argument) }?;
            }
            let end = stream
                .record_event(timed)
                .map_err(failed("cuEventRecord"))?;
            let ms = start
                .elapsed_ms(&end)
                .map_err(failed("cuEventElapsedTime"))?;
            self.seconds.push(f64::from(ms) / 1e3);
        }
        Ok(())
    }

    /// Bytes a second that a copy on the device reads and writes, the best of a few.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn copy_rate(&mut self) -> Result<f64, SubjectError> {
        let failed = |call| failed("copy", call);
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
        let stream = self.stream()?;
        let module = opened()?.module(&CEILING, (0, 0), &[])?;
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
        let failed = |call| failed(MOE.name, call);
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let mut best = f64::INFINITY;
        for _ in 0..times {
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
            best = best.min(f64::from(ms) / 1e3);
        }
        Ok(best)
    }

    /// A copy of `image` on the device, and where its byte `start` lies there.
    fn upload(
        stream: &Arc<CudaStream>,
        image: &[u8],
        start: usize,
    ) -> Result<(CudaSlice<u8>, *mut u8), SubjectError> {
        let slice = stream
            .clone_htod(image)
            .map_err(failed(MOE.name, "cuMemcpyHtoD"))?;
        let address = slice.device_ptr(stream).0;
        let address = usize::try_from(address).map_err(|_| SubjectError::Device {
            kernel: MOE.name,
            call: "cuMemAlloc",
            why: format!("the address {address:#x} leaves this machine's"),
        })?;
        Ok((slice, without_provenance_mut(address + start)))
    }
}

impl Machine for Device {
    const NAME: &'static str = "cuda";

    fn available(&self) -> Result<(), SkipReason> {
        opened().map(drop)
    }

    fn clear(&mut self) {
        self.read.clear();
        self.written.clear();
    }

    fn place(&mut self, bytes: &[u8]) -> Result<*const u8, SubjectError> {
        let stream = self.stream()?;
        let mut image = vec![0xff; bytes.len() + 2 * MARGIN];
        image[MARGIN..][..bytes.len()].copy_from_slice(bytes);
        let (slice, at) = Device::upload(&stream, &image, MARGIN)?;
        self.read.push(slice);
        Ok(at.cast_const())
    }

    fn lend(&mut self, workspace: &mut Workspace) -> Result<Addresses, SubjectError> {
        let stream = self.stream()?;
        let mut at = [std::ptr::null_mut(); Slot::COUNT];
        for (buffer, at) in workspace.all_mut().iter_mut().zip(&mut at) {
            let (image, start) = buffer.image_mut();
            let (slice, address) = Device::upload(&stream, image, start)?;
            self.written.push(slice);
            *at = address;
        }
        Ok(Addresses(at))
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
        for (launch, function) in &kernels {
            // SAFETY: what the caller promises of the work.
            unsafe { Device::launch(&stream, launch, function, &argument) }?;
            // One by one, so that an error is of the kernel that it names.
            stream
                .synchronize()
                .map_err(failed(launch.kernel.name(), "cuStreamSynchronize"))?;
        }
        for (slice, buffer) in self.written.iter().zip(workspace.all_mut()) {
            stream
                .memcpy_dtoh(slice, buffer.image_mut().0)
                .and_then(|()| stream.synchronize())
                .map_err(failed(Kernel::Second.name(), "cuMemcpyDtoH"))?;
        }
        if self.repeats > 0 {
            // SAFETY: what the caller promises of the work; the buffers are still there.
            unsafe { self.time(&stream, &kernels, &argument) }?;
        }
        device
            .context
            .check_err()
            .map_err(failed(Kernel::Second.name(), "an earlier call"))
    }
}

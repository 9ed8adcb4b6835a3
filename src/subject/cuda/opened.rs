//! The one device of this process: what it is, the kernels' modules on it, whose turn it is, and whether
//! it is lost.
//!
//! It must not launch anything. Layer 5.

use super::launch::{Kernel, Launch};
use super::nvrtc::{self, MOE, Nvrtc, Source};
use super::params::element;
use super::versions;
use crate::num::Dtype;
use crate::subject::error::{NoDevice, SkipReason, SubjectError};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, DriverError, result, sys};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
    /// Its compute capability.
    pub capability: (i32, i32),
    /// The CUDA version that the driver knows.
    pub driver: (i32, i32),
}

/// What compiles for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerFacts {
    /// NVRTC's version.
    pub version: (i32, i32),
    /// What there is to say of it beside this driver.
    pub note: Option<String>,
}

/// A kernel's module: what its source is, and the element types it is compiled for.
type Key = (&'static str, i32, i32);

/// The first device that the driver shows (CUDA_VISIBLE_DEVICES chooses).
pub(super) struct Opened {
    pub(super) context: Arc<CudaContext>,
    pub(super) facts: DeviceFacts,
    modules: Mutex<HashMap<Key, Arc<CudaModule>>>,
    /// Held over a whole layer: launches, and errors that a later call answers with, are of one case then.
    turn: Mutex<()>,
    lost: OnceLock<NoDevice>,
}

/// The device, unless it is lost.
///
/// # Errors
/// Why there is none, or none that will do.
pub(super) fn opened() -> Result<&'static Opened, SkipReason> {
    static OPENED: OnceLock<Result<Opened, NoDevice>> = OnceLock::new();
    let opened = OPENED.get_or_init(try_open);
    let opened = opened
        .as_ref()
        .map_err(|why| SkipReason::NoDevice(why.clone()))?;
    match opened.lost.get() {
        Some(why) => Err(SkipReason::NoDevice(why.clone())),
        None => Ok(opened),
    }
}

#[expect(unsafe_code, reason = "the driver is C")]
fn try_open() -> Result<Opened, NoDevice> {
    // Anything else panics where there is no driver.
    // SAFETY: it loads NVIDIA's driver, whose initialisers ask nothing of their caller.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoDevice::Library);
    }
    let of = |call: &'static str| {
        move |error: DriverError| NoDevice::Call {
            call,
            why: words(error),
        }
    };
    result::init().map_err(of("cuInit"))?;
    let mut version = 0;
    // SAFETY: it writes a number.
    let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    code.result().map_err(of("cuDriverGetVersion"))?;
    let driver = (version / 1000, version % 1000 / 10);
    if version < 12_000 {
        let (major, minor) = driver;
        return Err(NoDevice::OldDriver { major, minor });
    }
    if result::device::get_count().map_err(of("cuDeviceGetCount"))? == 0 {
        return Err(NoDevice::Hidden);
    }
    let context = CudaContext::new(0).map_err(of("cuDevicePrimaryCtxRetain"))?;
    let name = context.name().map_err(of("cuDeviceGetName"))?;
    let memory = context.total_mem().map_err(of("cuDeviceTotalMem"))?;
    let capability = context
        .compute_capability()
        .map_err(of("cuDeviceGetAttribute"))?;
    let (major, minor) = capability;
    if capability < LEAST {
        return Err(NoDevice::OldDevice { name, major, minor });
    }
    // As CI compiles them.
    let suffix = if major >= 9 { "a" } else { "" };
    Ok(Opened {
        facts: DeviceFacts {
            name,
            arch: format!("sm_{major}{minor}{suffix}"),
            memory: u64::try_from(memory).unwrap_or(u64::MAX),
            capability,
            driver,
        },
        context,
        modules: Mutex::default(),
        turn: Mutex::default(),
        lost: OnceLock::new(),
    })
}

/// What compiles for the device.
///
/// # Errors
/// Why there is no device, or no compiler.
pub(super) fn compiler() -> Result<CompilerFacts, SkipReason> {
    let device = opened()?;
    let version = device.nvrtc()?.version;
    Ok(CompilerFacts {
        version,
        note: versions::newer(version, device.facts.driver),
    })
}

/// Compiles the kernels of two element types for an architecture, without a device.
///
/// # Errors
/// Why there is no compiler, or what it says.
pub(super) fn compile(arch: &str, inputs: Dtype, weights: Dtype) -> Result<Vec<u8>, SubjectError> {
    let (a, w) = codes(inputs, weights)?;
    let driver = opened().ok().map(|device| device.facts.driver);
    let nvrtc = nvrtc::library(driver).map_err(SkipReason::NoCompiler)?;
    nvrtc::cubin(
        nvrtc,
        &MOE,
        arch,
        &[format!("-DPP_A={a}"), format!("-DPP_W={w}")],
    )
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
    /// The compiler for this device.
    fn nvrtc(&self) -> Result<&'static Nvrtc, SkipReason> {
        let facts = &self.facts;
        let nvrtc = nvrtc::library(Some(facts.driver)).map_err(SkipReason::NoCompiler)?;
        nvrtc
            .serves(facts.driver, facts.capability)
            .map_err(SkipReason::NoCompiler)?;
        Ok(nvrtc)
    }

    /// The device's turn, kept until it is dropped.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        // A panic in between leaves nothing behind that another layer looks at.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, after a call failed, whether all others will: the device is lost to this process then.
    pub(super) fn mourn(&self, error: &SubjectError, case: &str) {
        // Only the driver's own word counts: what the context keeps of an earlier call is told once and gone.
        let _ = self.context.check_err();
        if self.context.synchronize().is_err() {
            let case = (!case.is_empty()).then(|| case.to_owned());
            // The first fault is the one that counts.
            let _ = self.lost.set(NoDevice::Lost {
                fault: error.to_string(),
                case,
            });
        }
    }

    /// A kernel, compiled if it was not yet.
    pub(super) fn function(&self, launch: &Launch) -> Result<CudaFunction, SubjectError> {
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

    pub(super) fn module(
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
        let cubin = nvrtc::cubin(self.nvrtc()?, source, &self.facts.arch, defines)?;
        let refused = |error| {
            let note = compiler().ok().and_then(|compiler| compiler.note);
            let note = note.map_or_else(String::new, |note| format!("; {note}"));
            SubjectError::Device {
                kernel: source.name,
                call: "cuModuleLoadData",
                why: words(error) + &note,
            }
        };
        let module = self
            .context
            .load_module(Ptx::from_binary(cubin))
            .map_err(refused)?;
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}

/// A driver's error in its own words.
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

/// A call that failed.
pub(super) fn failed(
    kernel: &'static str,
    call: &'static str,
) -> impl Fn(DriverError) -> SubjectError + Copy {
    move |error| SubjectError::Device {
        kernel,
        call,
        why: words(error),
    }
}

//! NVIDIA's compiler, loaded at run time, and the kernels' source for it.
//!
//! It must not know devices. Layer 5.

use crate::subject::error::SubjectError;
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// A source that includes others.
pub(super) struct Source {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

/// The layer.
pub(super) const MOE: Source = Source {
    name: "moe.cu",
    text: include_str!("../../../kernels/moe.cu"),
};
/// What measures a device's own rate.
pub(super) const CEILING: Source = Source {
    name: "ceiling.cu",
    text: include_str!("../../../kernels/ceiling.cu"),
};
const HEADERS: [Source; 3] = [
    Source {
        name: "device.cuh",
        text: include_str!("../../../kernels/device.cuh"),
    },
    Source {
        name: "numeric.cuh",
        text: include_str!("../../../kernels/numeric.cuh"),
    },
    Source {
        name: "params.h",
        text: include_str!("../../../kernels/params.h"),
    },
];

/// Names that a loader knows the library by, the newest first.
const NAMES: [&str; 5] = [
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so",
    "nvrtc64_130_0.dll",
    "nvrtc64_120_0.dll",
];
/// Where toolkits put it, below their folder, and NVIDIA's wheels below a site-packages folder.
const PLACES: [&str; 4] = ["", "lib64", "lib", "nvidia/*/lib"];
/// Where a toolkit lies that the loader was not told of.
const TOOLKIT: &str = "/usr/local/cuda";

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Names the folder in which NVRTC is sought first: of a toolkit, or one that holds NVIDIA's wheels.
/// The first call counts, if it comes before anything is compiled.
pub fn seek_nvrtc(folder: &Path) {
    let _ = FOLDER.set(folder.to_owned());
}

/// The library's functions, as its manual declares them.
struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut *mut c_void,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    log_size: unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int,
    log: unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int,
    version: (c_int, c_int),
    /// Keeps them loaded.
    _library: Library,
}

/// The library's version; loads it.
///
/// # Errors
/// Why it cannot be had.
pub(super) fn version() -> Result<(i32, i32), String> {
    Ok(library()?.version)
}

fn library() -> Result<&'static Nvrtc, String> {
    static LIBRARY: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        if let Some(folder) = FOLDER.get() {
            return below(folder)
                .unwrap_or_else(|| Err(format!("no NVRTC below {}", folder.display())));
        }
        let named = NAMES.iter().find_map(|name| open(Path::new(name)).ok());
        named
            .map(functions)
            .or_else(|| below(Path::new(TOOLKIT)))
            .unwrap_or_else(|| {
                Err("no NVRTC: PADPROOF_NVRTC names the folder of a CUDA toolkit, or one that holds NVIDIA's wheels".to_owned())
            })
    });
    found.as_ref().map_err(Clone::clone)
}

/// The newest library below a folder; its builtins are loaded first, so that it finds them.
fn below(folder: &Path) -> Option<Result<Nvrtc, String>> {
    let base = glob::Pattern::escape(&folder.to_string_lossy());
    let newest = |file: &str| {
        let all = PLACES.iter().flat_map(|place| {
            let pattern = format!("{base}/{place}/{file}");
            glob::glob(&pattern).into_iter().flatten().flatten()
        });
        all.filter(|path| !path.to_string_lossy().contains(".alt."))
            .max()
    };
    let library = newest("libnvrtc.so.*")?;
    if let Some(Ok(builtins)) = newest("libnvrtc-builtins.so.*").map(|path| open(&path)) {
        std::mem::forget(builtins);
    }
    Some(open(&library).and_then(functions))
}

#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
fn open(path: &Path) -> Result<Library, String> {
    #[cfg(unix)]
    {
        use libloading::os::unix::{Library as Unix, RTLD_GLOBAL, RTLD_NOW};
        // SAFETY: NVIDIA's compiler, which has no initialisers that ask anything of its caller.
        let library = unsafe { Unix::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        library
            .map(Library::from)
            .map_err(|error| error.to_string())
    }
    #[cfg(not(unix))]
    {
        // SAFETY: NVIDIA's compiler, which has no initialisers that ask anything of its caller.
        unsafe { Library::new(path) }.map_err(|error| error.to_string())
    }
}

#[expect(unsafe_code, reason = "a symbol has no type")]
fn functions(library: Library) -> Result<Nvrtc, String> {
    macro_rules! symbol {
        ($name:literal) => {
            // SAFETY: the field, or the annotation, has the type that NVRTC's manual gives the function;
            // the library is kept beside it.
            *unsafe { library.get($name) }.map_err(|error| error.to_string())?
        };
    }
    let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = symbol!(b"nvrtcVersion");
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes two numbers.
    let code = unsafe { version(&raw mut major, &raw mut minor) };
    if code != 0 {
        return Err(format!("nvrtcVersion: error {code}"));
    }
    Ok(Nvrtc {
        create: symbol!(b"nvrtcCreateProgram"),
        compile: symbol!(b"nvrtcCompileProgram"),
        destroy: symbol!(b"nvrtcDestroyProgram"),
        log_size: symbol!(b"nvrtcGetProgramLogSize"),
        log: symbol!(b"nvrtcGetProgramLog"),
        cubin_size: symbol!(b"nvrtcGetCUBINSize"),
        cubin: symbol!(b"nvrtcGetCUBIN"),
        version: (major, minor),
        _library: library,
    })
}

/// A program of NVRTC, destroyed at its end.
struct Program {
    nvrtc: &'static Nvrtc,
    handle: *mut c_void,
}

impl Drop for Program {
    #[expect(unsafe_code, reason = "NVRTC is C")]
    fn drop(&mut self) {
        // SAFETY: the handle is of a program that is destroyed here alone.
        unsafe { (self.nvrtc.destroy)(&raw mut self.handle) };
    }
}

/// The machine code of a source for an architecture, with what it defines.
///
/// # Errors
/// Why there is no compiler, or what it says of the source.
#[expect(unsafe_code, reason = "NVRTC is C")]
pub(super) fn cubin(
    source: &Source,
    arch: &str,
    defines: &[String],
) -> Result<Vec<u8>, SubjectError> {
    let failed = |call: &'static str, why: String| SubjectError::Device {
        kernel: source.name,
        call,
        why: format!("{arch} {}: {why}", defines.join(" ")),
    };
    let nvrtc = library().map_err(|why| failed("NVRTC", why))?;
    let c = |text: &str| CString::new(text).expect("sources and options hold no zero byte");
    let (text, name) = (c(source.text), c(source.name));
    let headers = HEADERS.map(|header| (c(header.text), c(header.name)));
    let texts = headers.each_ref().map(|(text, _)| text.as_ptr());
    let names = headers.each_ref().map(|(_, name)| name.as_ptr());
    let mut program = Program {
        nvrtc,
        handle: null_mut(),
    };
    // SAFETY: every pointer is to a string that lives until the program is compiled; there are as many
    // headers as the number says.
    let code = unsafe {
        (nvrtc.create)(
            &raw mut program.handle,
            text.as_ptr(),
            name.as_ptr(),
            HEADERS.len() as c_int,
            texts.as_ptr(),
            names.as_ptr(),
        )
    };
    if code != 0 {
        return Err(failed("nvrtcCreateProgram", format!("error {code}")));
    }
    // Contraction off, so that a host gives the same bits (kernels/numeric.cuh).
    let options: Vec<CString> = [
        format!("--gpu-architecture={arch}"),
        "--std=c++20".to_owned(),
        "--fmad=false".to_owned(),
    ]
    .iter()
    .chain(defines)
    .map(|option| c(option))
    .collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the program was created; the options live until it is compiled.
    let code =
        unsafe { (nvrtc.compile)(program.handle, pointers.len() as c_int, pointers.as_ptr()) };
    if code != 0 {
        let log = fetch(&program, nvrtc.log_size, nvrtc.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches('\0').trim();
        return Err(failed(
            "nvrtcCompileProgram",
            format!("error {code}: {log}"),
        ));
    }
    fetch(&program, nvrtc.cubin_size, nvrtc.cubin)
        .map_err(|code| failed("nvrtcGetCUBIN", format!("error {code}")))
}

/// What a pair of functions gives of a program: its size, and its bytes.
#[expect(unsafe_code, reason = "NVRTC is C")]
fn fetch(
    program: &Program,
    size: unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int,
    bytes: unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int,
) -> Result<Vec<u8>, c_int> {
    let mut length = 0;
    // SAFETY: the program was created; it writes a number.
    let code = unsafe { size(program.handle, &raw mut length) };
    if code != 0 {
        return Err(code);
    }
    let mut all = vec![0u8; length];
    // SAFETY: it writes as many bytes as it said before.
    let code = unsafe { bytes(program.handle, all.as_mut_ptr().cast()) };
    if code == 0 { Ok(all) } else { Err(code) }
}

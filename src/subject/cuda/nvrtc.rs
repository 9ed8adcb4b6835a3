//! NVIDIA's compiler, loaded at run time, and the kernels' source for it.
//!
//! It must not know devices. Layer 5.

use super::versions::{fits, named_version, rank};
use crate::subject::error::{NoCompiler, SubjectError};
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

/// The first 16 hexadecimal digits of the BLAKE3 digest of everything that is compiled for a layer, file by
/// file behind its length.
pub(super) fn source_hash() -> String {
    let mut hasher = blake3::Hasher::new();
    for source in std::iter::once(&MOE).chain(&HEADERS) {
        hasher.update(&(source.text.len() as u64).to_le_bytes());
        hasher.update(source.text.as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Names that a loader knows the library by.
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
pub(super) struct Nvrtc {
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
    pub(super) version: (c_int, c_int),
    /// What it compiles for: 90 is sm_90, and sm_90a.
    archs: Vec<c_int>,
    /// Keeps them loaded.
    _library: Library,
}

impl Nvrtc {
    /// Whether this driver loads its code for this device.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn serves(
        &self,
        driver: (i32, i32),
        capability: (i32, i32),
    ) -> Result<(), NoCompiler> {
        fits(self.version, driver, &self.archs, capability)
    }
}

/// The library that suits a driver best, loaded; the first call chooses.
///
/// # Errors
/// Why there is none.
pub(super) fn library(driver: Option<(i32, i32)>) -> Result<&'static Nvrtc, NoCompiler> {
    static LIBRARY: OnceLock<Result<Nvrtc, NoCompiler>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        let (mut paths, none) = match FOLDER.get() {
            Some(folder) => (below(folder), NoCompiler::NotBelow(folder.clone())),
            None => {
                let named = NAMES.iter().map(PathBuf::from);
                let toolkit = below(Path::new(TOOLKIT));
                (named.chain(toolkit).collect(), NoCompiler::Nowhere)
            }
        };
        paths.sort_by_key(|path| rank(path, driver.map(|version| version.0)));
        first(&paths, none)
    });
    found.as_ref().map_err(Clone::clone)
}

/// The first of several libraries that can be used; else why the first that is there cannot, or `none`.
fn first(paths: &[PathBuf], none: NoCompiler) -> Result<Nvrtc, NoCompiler> {
    let mut why = None;
    for path in paths {
        let opened = open_with_builtins(path);
        // A bare name that the loader does not know says nothing; one that it knows does.
        if opened.is_err() && path.parent() == Some(Path::new("")) {
            continue;
        }
        match opened.and_then(functions) {
            Ok(nvrtc) => return Ok(nvrtc),
            Err(error) => {
                why.get_or_insert(NoCompiler::Unusable {
                    library: path.display().to_string(),
                    why: error,
                });
            }
        }
    }
    Err(why.unwrap_or(none))
}

/// The libraries below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    all(folder, &PLACES, "libnvrtc.so.*")
}

fn all(folder: &Path, places: &[&str], file: &str) -> Vec<PathBuf> {
    let base = glob::Pattern::escape(&folder.to_string_lossy());
    let found = places.iter().flat_map(|place| {
        let pattern = format!("{base}/{place}/{file}");
        glob::glob(&pattern).into_iter().flatten().flatten()
    });
    found
        .filter(|path| !path.to_string_lossy().contains(".alt."))
        .collect()
}

/// Opens a library after the builtins beside it that are of its version, so that it finds them.
fn open_with_builtins(path: &Path) -> Result<Library, String> {
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        let mut builtins = all(folder, &[""], "libnvrtc-builtins.so.*");
        let major = named_version(path).first().copied();
        builtins.sort_by_key(|path| named_version(path));
        builtins.retain(|path| named_version(path).first().copied() == major);
        if let Some(Ok(library)) = builtins.pop().map(|path| open(&path)) {
            std::mem::forget(library);
        }
    }
    open(path)
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
            *unsafe { library.get($name) }
                .map_err(|error| format!("{}: {error}", String::from_utf8_lossy($name)))?
        };
    }
    let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = symbol!(b"nvrtcVersion");
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes two numbers.
    let code = unsafe { version(&raw mut major, &raw mut minor) };
    if code != 0 {
        return Err(format!("nvrtcVersion: error {code}"));
    }
    let count: unsafe extern "C" fn(*mut c_int) -> c_int = symbol!(b"nvrtcGetNumSupportedArchs");
    let list: unsafe extern "C" fn(*mut c_int) -> c_int = symbol!(b"nvrtcGetSupportedArchs");
    let mut known = 0;
    // SAFETY: it writes a number.
    let code = unsafe { count(&raw mut known) };
    let mut archs = vec![0; usize::try_from(known).unwrap_or(0)];
    // SAFETY: it writes as many numbers as it said before.
    let code = if code == 0 {
        unsafe { list(archs.as_mut_ptr()) }
    } else {
        code
    };
    if code != 0 {
        return Err(format!("nvrtcGetSupportedArchs: error {code}"));
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
        archs,
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
/// What the compiler says of the source.
#[expect(unsafe_code, reason = "NVRTC is C")]
pub(super) fn cubin(
    nvrtc: &'static Nvrtc,
    source: &Source,
    arch: &str,
    defines: &[String],
) -> Result<Vec<u8>, SubjectError> {
    let failed = |call: &'static str, why: String| SubjectError::Device {
        kernel: source.name,
        call,
        why: format!("{arch} {}: {why}", defines.join(" ")),
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_loads_and_is_no_compiler_is_named_and_an_unknown_bare_name_is_not() {
        let bare = PathBuf::from("libno-such-nvrtc.so.12");
        let said = |paths: &[PathBuf]| first(paths, NoCompiler::Nowhere).err();
        assert_eq!(said(std::slice::from_ref(&bare)), Some(NoCompiler::Nowhere));
        if cfg!(target_os = "linux") {
            // The C library is there and has no nvrtcVersion.
            let libc = PathBuf::from("libc.so.6");
            let why = said(&[bare, libc])
                .map(|why| why.to_string())
                .unwrap_or_default();
            assert!(
                why.starts_with("libc.so.6: ") && why.contains("nvrtcVersion"),
                "{why}"
            );
        }
    }
}

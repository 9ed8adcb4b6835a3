//! NVIDIA's compiler, loaded at run time, and the kernels' source for it.
//!
//! It must not know devices. Layer 5.

use crate::subject::error::{NoCompiler, SkipReason, SubjectError};
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
static DRIVER: OnceLock<(i32, i32)> = OnceLock::new();

/// Names the folder in which NVRTC is sought first: of a toolkit, or one that holds NVIDIA's wheels.
/// The first call counts, if it comes before anything is compiled.
pub fn seek_nvrtc(folder: &Path) {
    let _ = FOLDER.set(folder.to_owned());
}

/// Says which CUDA version the driver knows, so that a library is taken whose code it loads. The first
/// call counts, if it comes before anything is compiled.
pub(super) fn serve_driver(version: (i32, i32)) {
    let _ = DRIVER.set(version);
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
pub(super) fn version() -> Result<(i32, i32), NoCompiler> {
    Ok(library()?.version)
}

/// What there is to say of a library that is newer than the driver.
pub(super) fn newer((major, minor): (i32, i32), driver: (i32, i32)) -> Option<String> {
    let (known, known_minor) = driver;
    if major > known {
        return Some(format!(
            "NVRTC {major}.{minor} is of a newer major version than the driver's CUDA {known}.{known_minor}, which may refuse its code"
        ));
    }
    ((major, minor) > driver).then(|| {
        format!(
            "NVRTC {major}.{minor} is newer than the driver's CUDA {known}.{known_minor}; machine code, unlike PTX, is taken within a major version"
        )
    })
}

fn library() -> Result<&'static Nvrtc, NoCompiler> {
    static LIBRARY: OnceLock<Result<Nvrtc, NoCompiler>> = OnceLock::new();
    let driver = || DRIVER.get().map(|version| version.0);
    let found = LIBRARY.get_or_init(|| {
        if let Some(folder) = FOLDER.get() {
            return first(
                below(folder),
                driver(),
                NoCompiler::NotBelow(folder.clone()),
            );
        }
        let named = NAMES.iter().map(PathBuf::from).collect();
        // The loader's own come first; which of them are there, only opening them tells.
        first(named, driver(), NoCompiler::Nowhere).or_else(|_| {
            let toolkit = below(Path::new(TOOLKIT));
            first(toolkit, driver(), NoCompiler::Nowhere)
        })
    });
    found.as_ref().map_err(Clone::clone)
}

/// The first of several libraries that can be used, the most suitable first; else why the last one cannot,
/// or `none`.
fn first(
    mut paths: Vec<PathBuf>,
    driver: Option<i32>,
    none: NoCompiler,
) -> Result<Nvrtc, NoCompiler> {
    paths.sort_by_key(|path| rank(path, driver));
    let mut why = none;
    for path in paths {
        match open_with_builtins(&path).and_then(functions) {
            Ok(nvrtc) => return Ok(nvrtc),
            // A bare name that the loader does not know says nothing.
            Err(_) if path.parent() == Some(Path::new("")) => {}
            Err(error) => {
                why = NoCompiler::Unusable {
                    library: path.display().to_string(),
                    why: error,
                };
            }
        }
    }
    Err(why)
}

/// The version in a library's name: 12, 8 and 93 of libnvrtc.so.12.8.93, 13 of nvrtc64_130_0.dll.
fn named_version(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some((_, version)) = name.split_once(".so.") {
        return version
            .split('.')
            .map_while(|part| part.parse().ok())
            .collect();
    }
    let digits = name
        .split_once("64_")
        .and_then(|(_, rest)| rest.split('_').next());
    let number = digits.and_then(|digits| digits.parse::<u32>().ok());
    number.map_or_else(Vec::new, |n| vec![n / 10, n % 10])
}

/// Smaller is more suitable: first those that are not of a newer major version than the driver, the newest
/// of them before the others, then the oldest of the rest. Names without a version come last.
fn rank(path: &Path, driver: Option<i32>) -> (u8, Vec<i64>) {
    let version: Vec<i64> = named_version(path).into_iter().map(i64::from).collect();
    match (version.first(), driver) {
        (None, _) => (2, version),
        (Some(major), Some(driver)) if *major > i64::from(driver) => (1, version),
        // The longer name of two that agree as far as they go is the newer or the same.
        _ => {
            let newest = version.iter().map(|n| -n).chain([1]).collect();
            (0, newest)
        }
    }
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
    let nvrtc = library().map_err(SkipReason::NoCompiler)?;
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

    fn order(driver: Option<i32>, names: &[&str]) -> Vec<String> {
        let mut paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        paths.sort_by_key(|path| rank(path, driver));
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn libraries_are_ordered_by_version_and_not_by_spelling() {
        let names = [
            "a/libnvrtc.so.9.2",
            "z/libnvrtc.so.11.2",
            "a/libnvrtc.so.12.8.93",
            "m/libnvrtc.so.12.10.1",
            "libnvrtc.so",
            "b/libnvrtc.so.13",
        ];
        assert_eq!(
            order(None, &names),
            [
                "b/libnvrtc.so.13",
                "m/libnvrtc.so.12.10.1",
                "a/libnvrtc.so.12.8.93",
                "z/libnvrtc.so.11.2",
                "a/libnvrtc.so.9.2",
                "libnvrtc.so"
            ]
        );
    }

    #[test]
    fn a_library_of_a_newer_major_version_than_the_driver_comes_after_those_that_fit() {
        let names = [
            "libnvrtc.so.14",
            "libnvrtc.so.13",
            "libnvrtc.so.12",
            "libnvrtc.so",
        ];
        assert_eq!(
            order(Some(12), &names),
            [
                "libnvrtc.so.12",
                "libnvrtc.so.13",
                "libnvrtc.so.14",
                "libnvrtc.so"
            ]
        );
        assert_eq!(order(Some(13), &names)[0], "libnvrtc.so.13");
        let names = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];
        assert_eq!(order(Some(12), &names)[0], "nvrtc64_120_0.dll");
    }

    #[test]
    fn a_newer_library_than_the_driver_is_said_in_a_sentence() {
        assert_eq!(newer((12, 8), (12, 8)), None);
        assert_eq!(newer((12, 4), (13, 0)), None);
        assert!(
            newer((12, 9), (12, 4)).is_some_and(|said| said.contains("within a major version"))
        );
        assert!(newer((13, 0), (12, 8)).is_some_and(|said| said.contains("may refuse")));
    }
}

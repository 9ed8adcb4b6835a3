//! Which NVRTC suits a driver and a device, by their versions.
//!
//! It must not load anything. Layer 5.

use crate::subject::error::NoCompiler;
use std::path::Path;

/// Whether a driver loads a library's code for a device, as far as their versions tell.
///
/// # Errors
/// Why not.
pub(super) fn fits(
    version: (i32, i32),
    driver: (i32, i32),
    archs: &[i32],
    capability: (i32, i32),
) -> Result<(), NoCompiler> {
    if version.0 > driver.0 {
        return Err(NoCompiler::Newer { version, driver });
    }
    let arch = capability.0 * 10 + capability.1;
    if archs.contains(&arch) {
        return Ok(());
    }
    Err(NoCompiler::Older { version, arch })
}

/// What there is to say of a library that is newer than the driver, within its major version.
pub(super) fn newer((major, minor): (i32, i32), driver: (i32, i32)) -> Option<String> {
    let (known, known_minor) = driver;
    (major == known && minor > known_minor).then(|| {
        format!(
            "NVRTC {major}.{minor} is newer than the driver's CUDA {known}.{known_minor}; machine code, unlike PTX, is taken within a major version"
        )
    })
}

/// The version in a library's name: 12, 8 and 93 of libnvrtc.so.12.8.93, 13 of nvrtc64_130_0.dll.
pub(super) fn named_version(path: &Path) -> Vec<u32> {
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
pub(super) fn rank(path: &Path, driver: Option<i32>) -> (u8, Vec<i64>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
        assert_eq!(newer((13, 0), (12, 8)), None, "it does not serve at all");
    }

    #[test]
    fn code_that_a_driver_or_a_library_does_not_know_is_known_before_it_is_made() {
        let archs = [75, 80, 89, 90];
        assert_eq!(fits((12, 9), (12, 4), &archs, (9, 0)), Ok(()));
        assert_eq!(fits((12, 9), (13, 0), &archs, (8, 0)), Ok(()));
        let said = |version, driver, capability| {
            let why = fits(version, driver, &archs, capability);
            why.map_or_else(|why| why.to_string(), |()| String::new())
        };
        assert_eq!(
            said((13, 0), (12, 8), (9, 0)),
            "NVRTC 13.0 makes code that the driver, of CUDA 12.8, does not load: install nvidia-cuda-nvrtc-cu12 (pip install --no-deps --target FOLDER) and set PADPROOF_NVRTC=FOLDER"
        );
        assert_eq!(
            said((12, 4), (13, 0), (10, 0)),
            "NVRTC 12.4 does not know sm_100: a newer one, of the driver's major version, is needed"
        );
    }
}

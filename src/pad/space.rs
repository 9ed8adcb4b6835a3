//! Whether the output fits where it goes, and a file what the process may write, before it is written.
//!
//! The system ends a process that writes a file beyond its limit, so that nothing could be said then. It must not
//! write. Layer 8.

use super::error::PadError;
use super::folder::{list, partial};
use std::path::{Path, PathBuf};

/// Fails where the file system that `out` goes to has less room than its files need, or one is larger than this
/// process may write.
///
/// Each file is its bytes, and whether the input's may stand in its place under another name, which
/// takes none on the same file system. What an earlier run left is room that there will be.
pub(super) fn fits(folder: &Path, out: &Path, files: &[(u64, bool)]) -> Result<(), PadError> {
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let linked = same_system(folder, &parent);
    let taken = files.iter().filter(|(_, may_link)| !(linked && *may_link));
    let taken = taken.map(|(bytes, _)| *bytes);
    let file = format!("a file of {}", out.display());
    may_write(&file, taken.clone().max().unwrap_or(0))?;
    let Some(free) = free(&parent) else {
        return Ok(());
    };
    let needs = taken.fold(0, u64::saturating_add).saturating_sub(left(out));
    match needs > free {
        true => Err(PadError::NoSpace {
            out: out.display().to_string(),
            needs,
            free,
        }),
        false => Ok(()),
    }
}

/// Fails where a file of so many bytes is larger than this process may write; `file` is for the message.
pub(super) fn may_write(file: &str, needs: u64) -> Result<(), PadError> {
    match file_limit().filter(|&most| needs > most) {
        None => Ok(()),
        Some(most) => Err(PadError::FileLimit {
            file: file.to_owned(),
            needs,
            most,
        }),
    }
}

/// Bytes that a file may have which this process writes; none where there is no limit.
#[cfg(unix)]
fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

#[cfg(not(unix))]
fn file_limit() -> Option<u64> {
    None
}

/// Bytes of what an earlier run left unfinished.
fn left(out: &Path) -> u64 {
    let partial = partial(out);
    if !partial.exists() {
        return 0;
    }
    let files = list(&partial).unwrap_or_default();
    files
        .iter()
        .map(|file| file.bytes)
        .fold(0, u64::saturating_add)
}

/// Bytes that a user may write below a folder; none where the system does not say.
#[cfg(unix)]
fn free(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}

#[cfg(unix)]
fn same_system(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let system = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
    system(a).is_some() && system(a) == system(b)
}

#[cfg(not(unix))]
fn same_system(_: &Path, _: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_one_sentence_with_both_numbers() {
        let folder = std::env::temp_dir();
        let out = folder.join("padproof-never-written");
        let asked = |bytes, link| fits(&folder, &out, &[(bytes, link)]);
        assert!(asked(1, false).is_ok());
        // The same file system: a link takes nothing.
        assert!(asked(u64::MAX, true).is_ok());
        if free(&folder).is_some() {
            let why = asked(u64::MAX, false).unwrap_err().to_string();
            let wanted = format!("needs {} bytes more, and ", u64::MAX);
            assert!(
                why.contains(&wanted) && why.ends_with("nothing was written"),
                "{why}"
            );
        }
        assert!(!partial(&out).exists());
    }
}

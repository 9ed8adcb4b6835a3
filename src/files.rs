//! Opens files that are read to their end.
//!
//! It must not read them. Layer 0.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file that somebody named. A pipe is read only where it is open already, as `/dev/stdin` and what
/// `<(command)` stands for are: any other would be waited for.
///
/// # Errors
/// Those of the system; a pipe or a socket.
pub fn open(path: &Path) -> io::Result<File> {
    let held = ["/dev/stdin", "/dev/fd", "/proc/self/fd"];
    let held = held.iter().any(|held| path.starts_with(held));
    if !held && waits(&std::fs::metadata(path)?) {
        return Err(io::Error::other(
            "not a regular file: pipes are read as /dev/stdin or <(command)",
        ));
    }
    File::open(path)
}

#[cfg(unix)]
fn waits(is: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    is.file_type().is_fifo() || is.file_type().is_socket()
}

#[cfg(not(unix))]
fn waits(_: &std::fs::Metadata) -> bool {
    false
}

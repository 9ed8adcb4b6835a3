//! Makes a checkpoint of a chosen size, of invented numbers, to try `pad`, `verify` and `audit` on.
//!
//! ```console
//! cargo run --release --example invent -- FOLDER GIB [nvfp4|mxfp4|bf16]
//! ```

mod make;

use make::{Format, invent};
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = || io::Error::other("usage: invent FOLDER GIB [nvfp4|mxfp4|bf16]");
    let folder = args.next().ok_or_else(usage)?;
    let gib: f64 = args.next().and_then(|n| n.parse().ok()).ok_or_else(usage)?;
    let format: Format = args.next().as_deref().unwrap_or("nvfp4").parse()?;
    let bytes = (gib * f64::from(1 << 30)) as u64;
    invent(Path::new(&folder), bytes, format)
}

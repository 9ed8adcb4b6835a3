//! Turns each function of [`targets`] into a program: a fuzzer's, or one that replays files.
//!
//! No checks here; they are in [`targets`], which `tests/replay.rs` shares.

#![warn(missing_docs)]

#[cfg(fuzzing)]
#[doc(hidden)]
pub use libfuzzer_sys;
#[doc(hidden)]
pub use padproof;

pub mod targets;

use std::path::PathBuf;
use std::process::ExitCode;
use targets::{Body, Outcome, replay_path};

/// Expands to a target: under `cfg(fuzzing)` libFuzzer's entry, which panics with the case and
/// its reproducer; otherwise a `main` that replays the files and folders given as arguments.
///
/// `case NAME` takes whole cases, `bytes NAME` the bytes as they are.
#[macro_export]
macro_rules! target {
    (case $body:ident) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(
            |case: $crate::padproof::case::Case| -> $crate::libfuzzer_sys::Corpus {
                $crate::corpus($crate::targets::$body(&case))
            }
        );
        $crate::target!(main $crate::targets::Body::Case($crate::targets::$body));
    };
    (bytes $body:ident) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> $crate::libfuzzer_sys::Corpus {
            $crate::corpus($crate::targets::$body(bytes))
        });
        $crate::target!(main $crate::targets::Body::Bytes($crate::targets::$body));
    };
    (main $body:expr) => {
        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            $crate::replay(&$body)
        }
    };
}

/// What libFuzzer is told; one of the two places where a failing verdict becomes a panic.
///
/// # Panics
/// On [`Outcome::Failed`].
#[cfg(fuzzing)]
pub fn corpus(outcome: Outcome) -> libfuzzer_sys::Corpus {
    match outcome {
        Outcome::Held => libfuzzer_sys::Corpus::Keep,
        Outcome::Rejected => libfuzzer_sys::Corpus::Reject,
        Outcome::Failed(evidence) => panic!("{evidence}"),
    }
}

/// Replays the files and folders of the command line. Exits 0, 1 when something failed, 2 when
/// a path cannot be read, 4 when nothing ran.
pub fn replay(body: &Body) -> ExitCode {
    let (mut ran, mut held, mut failed) = (0, 0, 0);
    for path in std::env::args_os().skip(1).map(PathBuf::from) {
        let outcomes = match replay_path(body, &path) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::from(2);
            }
        };
        for (input, outcome) in outcomes {
            ran += 1;
            match outcome {
                Outcome::Held => held += 1,
                Outcome::Rejected => {}
                Outcome::Failed(evidence) => {
                    failed += 1;
                    println!("FAIL {input}\n{evidence}");
                }
            }
        }
    }
    println!("{ran} ran, {held} held, {failed} failed");
    match (ran, failed) {
        (0, _) => ExitCode::from(4),
        (_, 0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

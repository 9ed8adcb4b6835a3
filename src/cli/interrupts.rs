//! Listens for interrupts, and says which of a command's work and an interrupt came first.
//!
//! It must not know what the command does. Layer 11.

use super::error::CliError;
use std::sync::{Arc, OnceLock};

/// What came first: the moment that a command names, or an interrupt. It stays so.
#[derive(Debug, Clone, Default)]
pub(super) struct First(Arc<OnceLock<Came>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Moment,
    Interrupt,
}

impl First {
    /// The command is at its moment; whether no interrupt came before.
    pub(super) fn moment(&self) -> bool {
        *self.0.get_or_init(|| Came::Moment) == Came::Moment
    }

    /// An interrupt came; whether it came before the moment.
    pub(super) fn interrupt(&self) -> bool {
        *self.0.get_or_init(|| Came::Interrupt) == Came::Interrupt
    }
}

/// Does `act` at every interrupt, in a thread of its own.
///
/// On Linux, a process that was started to outlive interrupts or its terminal, as by nohup, listens for none: a
/// handler would take the place of what its starter ignores. A request to terminate ends it at once then.
///
/// # Errors
/// When the system lets it listen for none.
pub(super) fn listen(act: impl FnMut() + Send + 'static) -> Result<(), CliError> {
    if ignored() {
        return Ok(());
    }
    ctrlc::set_handler(act)
        .map_err(|error| CliError::Usage(format!("cannot listen for interrupts: {error}")))
}

/// Whether the process began with interrupts or the loss of its terminal ignored; no, where there is no /proc to
/// say so.
fn ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    // Bits of SIGHUP, which is 1, and SIGINT, 2.
    mask.is_some_and(|mask| mask & 0b11 != 0)
}

//! The last of what a process wrote to its standard error.
//!
//! It must not grow with what is written. Layer 5.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that are kept.
const KEPT: usize = 1 << 16;
/// Lines that findings show.
const LINES: usize = 10;
/// How long what a process wrote before its reply may take to arrive, looked for so often.
const SOON: Duration = Duration::from_millis(5);
const LOOKS: usize = 10;
/// How long a dead process's last words are waited for.
const WAIT: Duration = Duration::from_millis(500);

/// A ring of the last bytes, filled by a thread.
#[derive(Debug)]
pub(super) struct Stderr {
    kept: Arc<Mutex<VecDeque<u8>>>,
    /// Hears of the end when the thread drops its sender.
    end: Receiver<()>,
    /// Whether it was waited for in vain.
    silent: Cell<bool>,
}

impl Stderr {
    pub(super) fn read(mut from: impl Read + Send + 'static) -> Stderr {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let inside = Arc::clone(&kept);
        let (held, end): (Sender<()>, _) = channel();
        std::thread::spawn(move || {
            let _held = held;
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let mut ring = inside.lock().unwrap_or_else(PoisonError::into_inner);
                ring.extend(&buffer[..count]);
                let over = ring.len().saturating_sub(KEPT);
                ring.drain(..over);
            }
        });
        Stderr {
            kept,
            end,
            silent: Cell::new(false),
        }
    }

    /// The last lines of a process that has ended; something it started may still hold the pipe.
    pub(super) fn last_words(&self) -> Vec<String> {
        // An error either way: nobody sends, the sender goes or the time does.
        let _ = self.end.recv_timeout(WAIT);
        self.lines()
    }

    /// The last lines of a process that runs on.
    pub(super) fn recent(&self) -> Vec<String> {
        // One that writes nothing is waited for once.
        let looks = if self.silent.replace(true) { 1 } else { LOOKS };
        for _ in 0..looks {
            let running = self.end.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout);
            let lines = self.lines();
            if !running || !lines.is_empty() {
                self.silent.set(false);
                return lines;
            }
        }
        Vec::new()
    }

    fn lines(&self) -> Vec<String> {
        let mut ring = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(ring.make_contiguous()).into_owned();
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        let first = lines.len().saturating_sub(LINES);
        lines[first..]
            .iter()
            .map(|l| crate::terms::plain(l))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_more_memory() {
        let mut text = "x".repeat(3 * KEPT);
        for n in 0..30 {
            text.push_str(&format!("\nline {n}\u{1b}[2J"));
        }
        let stderr = Stderr::read(std::io::Cursor::new(text.into_bytes()));
        let words = stderr.last_words();
        assert_eq!(words.len(), LINES);
        assert_eq!(words[9], "line 29 [2J", "no control characters");
        assert!(stderr.kept.lock().unwrap().len() <= KEPT);
    }
}

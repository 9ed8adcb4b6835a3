//! Frames on a pipe: an 8-byte little-endian length, then so many bytes.
//!
//! It must not take memory for bytes that have not come. Layer 5.

use super::group::lock;
use crate::subject::error::Misbehaviour;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex};

/// Bytes of a frame's length.
const LENGTH: usize = 8;
/// Characters that are shown of what stands where a message should.
const SHOWN: usize = 100;

/// Writes one frame.
pub(super) fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// A stream of frames.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: BufReader<R>,
    begun: Begun,
}

/// What came of a length that has not come whole: for whoever waits no longer.
#[derive(Debug, Clone, Default)]
pub(super) struct Begun(Arc<Mutex<Vec<u8>>>);

impl Begun {
    /// What it says, if it is words.
    pub(super) fn text(&self) -> String {
        text(&lock(&self.0))
    }
}

impl<R: Read> Frames<R> {
    pub(super) fn new(from: R) -> Frames<R> {
        Frames {
            from: BufReader::new(from),
            begun: Begun::default(),
        }
    }

    pub(super) fn begun(&self) -> &Begun {
        &self.begun
    }

    /// Reads one frame of at most `limit` bytes; none where the stream ends before it.
    pub(super) fn read(
        &mut self,
        limit: impl Fn() -> u64,
    ) -> Result<Option<Vec<u8>>, Misbehaviour> {
        let length = self.length()?;
        if length.is_empty() {
            return Ok(None);
        }
        let Ok(exact) = <[u8; LENGTH]>::try_from(&length[..]) else {
            return Err(Misbehaviour::Cut {
                got: length.len() as u64,
                wanted: LENGTH as u64,
                text: text(&length),
            });
        };
        let wanted = u64::from_le_bytes(exact);
        let limit = limit();
        if wanted > limit {
            let printed = [&length, self.from.buffer()].concat();
            return Err(Misbehaviour::TooLong {
                bytes: wanted,
                limit,
                text: text(&printed),
            });
        }
        let mut bytes = Vec::new();
        // Memory grows as they come.
        let read = (&mut self.from).take(wanted).read_to_end(&mut bytes);
        read.map_err(|error| Misbehaviour::Pipe(error.to_string()))?;
        if (bytes.len() as u64) < wanted {
            return Err(Misbehaviour::Cut {
                got: bytes.len() as u64,
                wanted,
                text: String::new(),
            });
        }
        Ok(Some(bytes))
    }

    /// The next frame's length, or what there is of it.
    fn length(&mut self) -> Result<Vec<u8>, Misbehaviour> {
        let mut length = Vec::with_capacity(LENGTH);
        while length.len() < LENGTH {
            let there = match self.from.fill_buf() {
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Misbehaviour::Pipe(error.to_string())),
            };
            let taken = there.len().min(LENGTH - length.len());
            if taken == 0 {
                break;
            }
            length.extend_from_slice(&there[..taken]);
            self.from.consume(taken);
            lock(&self.begun.0).clone_from(&length);
        }
        lock(&self.begun.0).clear();
        Ok(length)
    }
}

/// What stands where a message should: words, if a program prints to standard output.
fn text(bytes: &[u8]) -> String {
    let words = match std::str::from_utf8(bytes) {
        Ok(words) => words,
        // A letter of several bytes that is cut off.
        Err(e) if e.error_len().is_none() => {
            std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return String::new(),
    };
    let odd = |c: char| c.is_control() && !c.is_whitespace() && c != '\u{1b}';
    let line = words.trim().lines().next().unwrap_or_default();
    if line.is_empty() || words.contains(odd) {
        return String::new();
    }
    let shown: String = line.chars().take(SHOWN).collect();
    format!(
        ": standard output begins with `{}`",
        crate::terms::plain(&shown)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        write(&mut all, bytes).unwrap();
        all
    }

    fn read(from: &[u8], limit: u64) -> Misbehaviour {
        Frames::new(from).read(|| limit).unwrap_err()
    }

    #[test]
    fn frames_come_back_one_by_one() {
        let all = [framed(b"one"), framed(b""), framed(b"three")].concat();
        let mut frames = Frames::new(&all[..]);
        for wanted in [&b"one"[..], b"", b"three"] {
            assert_eq!(frames.read(|| 5).unwrap().unwrap(), wanted);
        }
        assert_eq!(frames.read(|| 5), Ok(None));
    }

    #[test]
    fn a_huge_length_is_refused_before_memory_is_taken() {
        let error = read(&[0xff; 64], 1 << 20);
        assert!(matches!(
            error,
            Misbehaviour::TooLong {
                bytes: u64::MAX,
                ..
            }
        ));
        // One that is allowed takes no more than came.
        let all = [&u64::MAX.to_le_bytes()[..], b"four"].concat();
        assert!(matches!(
            read(&all, u64::MAX),
            Misbehaviour::Cut { got: 4, .. }
        ));
    }

    #[test]
    fn printed_words_are_shown() {
        for (printed, wanted) in [
            ("Loading model\nDone\n", "`Loading model`"),
            ("Hi\n", "`Hi`"),
            ("→ loading", "`→ loading`"),
            ("\n\n\n\n\n\n\n\nready", "`ready`"),
        ] {
            let error = read(printed.as_bytes(), 1 << 20).to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn words_that_stop_short_of_a_length_are_kept_for_who_waits() {
        struct Then(bool, Begun);
        impl Read for Then {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    assert!(self.1.text().contains("`hm`"), "{}", self.1.text());
                    return Ok(0);
                }
                into[..2].copy_from_slice(b"hm");
                Ok(2)
            }
        }
        let begun = Begun::default();
        let mut frames = Frames {
            from: BufReader::new(Then(false, begun.clone())),
            begun,
        };
        assert!(frames.read(|| 1).is_err());
    }

    #[test]
    fn a_frame_that_ends_early_says_how_much_came() {
        let all = framed(b"twelve bytes");
        let error = read(&all[..15], 100);
        assert_eq!(
            error,
            Misbehaviour::Cut {
                got: 7,
                wanted: 12,
                text: String::new()
            }
        );
    }
}

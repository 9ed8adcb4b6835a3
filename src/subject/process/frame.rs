//! Frames on a pipe: an 8-byte little-endian length, then so many bytes.
//!
//! It must not take memory for bytes that have not come. Layer 5.

use crate::subject::error::Misbehaviour;
use std::io::{self, Read, Write};

/// Bytes of a frame's length.
const LENGTH: usize = 8;

/// Writes one frame.
pub(super) fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads one frame of at most `limit` bytes; none where the stream ends before it.
pub(super) fn read(
    from: &mut impl Read,
    limit: impl Fn() -> u64,
) -> Result<Option<Vec<u8>>, Misbehaviour> {
    let mut length = Vec::with_capacity(LENGTH);
    fill(from, LENGTH as u64, &mut length)?;
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
        return Err(Misbehaviour::TooLong {
            bytes: wanted,
            limit,
            text: text(&length),
        });
    }
    let mut bytes = Vec::new();
    fill(from, wanted, &mut bytes)?;
    if (bytes.len() as u64) < wanted {
        return Err(Misbehaviour::Cut {
            got: bytes.len() as u64,
            wanted,
            text: String::new(),
        });
    }
    Ok(Some(bytes))
}

/// Up to `count` bytes, in memory that grows as they come.
fn fill(from: &mut impl Read, count: u64, into: &mut Vec<u8>) -> Result<(), Misbehaviour> {
    match from.take(count).read_to_end(into) {
        Ok(_) => Ok(()),
        Err(error) => Err(Misbehaviour::Pipe(error.to_string())),
    }
}

/// What stands where a length should: words, if a program prints to standard output.
fn text(bytes: &[u8]) -> String {
    let printed = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
    if !bytes.is_empty() && bytes.iter().all(printed) {
        let words = String::from_utf8_lossy(bytes);
        format!(": standard output begins with `{}`", words.trim_end())
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        write(&mut all, bytes).unwrap();
        all
    }

    #[test]
    fn frames_come_back_one_by_one() {
        let all = [framed(b"one"), framed(b""), framed(b"three")].concat();
        let mut from = &all[..];
        for wanted in [&b"one"[..], b"", b"three"] {
            assert_eq!(read(&mut from, || 5).unwrap().unwrap(), wanted);
        }
        assert_eq!(read(&mut from, || 5), Ok(None));
    }

    #[test]
    fn a_huge_length_is_refused_before_memory_is_taken() {
        let error = read(&mut &[0xff; 64][..], || 1 << 20).unwrap_err();
        assert!(matches!(
            error,
            Misbehaviour::TooLong {
                bytes: u64::MAX,
                ..
            }
        ));
    }

    #[test]
    fn printed_words_are_shown() {
        let error = read(&mut &b"Loading model"[..], || 1 << 20).unwrap_err();
        assert!(error.to_string().contains("`Loading`"), "{error}");
        let error = read(&mut &b"Hi\n"[..], || 1 << 20).unwrap_err();
        assert!(error.to_string().contains("`Hi`"), "{error}");
    }

    #[test]
    fn a_frame_that_ends_early_says_how_much_came() {
        let all = framed(b"twelve bytes");
        let error = read(&mut &all[..15], || 100).unwrap_err();
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

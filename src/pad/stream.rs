//! A tensor's bytes through its padding and back, a few MiB at a time.
//!
//! It must not know files: bytes come from and go to closures. Layer 8.

use super::change::Padding;
use super::error::PadError;
use std::ops::Range;

/// Bytes read or written at once.
pub(super) const CHUNK: usize = 4 << 20;

/// Gives a range of a tensor's bytes.
pub(super) type Read<'a> = dyn FnMut(Range<u64>) -> Result<Vec<u8>, PadError> + 'a;
/// Takes the next bytes.
pub(super) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), PadError> + 'a;

/// All bytes of a tensor, piece by piece.
pub(super) fn whole(bytes: u64, read: &mut Read<'_>, sink: &mut Sink<'_>) -> Result<(), PadError> {
    let mut at = 0;
    while at < bytes {
        let end = bytes.min(at + count(CHUNK));
        sink(&read(at..end)?)?;
        at = end;
    }
    Ok(())
}

/// Reads a tensor of the input once from front to back, and gives the bytes of the padded one.
pub(super) fn pad(
    padding: &Padding,
    read: &mut Read<'_>,
    sink: &mut Sink<'_>,
) -> Result<(), PadError> {
    let unit = padding.unit();
    let (from, to) = (padding.cols.from * unit, padding.cols.to * unit);
    let batch = (CHUNK / from.max(to).max(1)).max(1);
    let mut out = Vec::new();
    for lead in 0..padding.lead {
        // The row that was read last, padded: only that one is repeated.
        let mut next = 0_usize;
        for run in &padding.rows.runs {
            let Some(source) = run.source else {
                fill(&padding.fill, count(run.len) * count(to), sink)?;
                continue;
            };
            let repeats = next.saturating_sub(source).min(run.len);
            for _ in 0..repeats {
                sink(&out[out.len() - to..])?;
            }
            let mut row = repeats;
            while row < run.len {
                let rows = batch.min(run.len - row);
                let first = lead * padding.rows.from + source + row;
                let bytes = read(count(first) * count(from)..count(first + rows) * count(from))?;
                row += rows;
                out.clear();
                if padding.cols.is_whole() {
                    sink(&bytes)?;
                    out.extend_from_slice(&bytes[bytes.len() - to..]);
                    continue;
                }
                for line in bytes.chunks_exact(from) {
                    widen(padding, line, &mut out);
                }
                sink(&out)?;
            }
            next = source + run.len;
        }
    }
    Ok(())
}

/// One row with its columns' padding.
fn widen(padding: &Padding, line: &[u8], out: &mut Vec<u8>) {
    let unit = padding.unit();
    for run in &padding.cols.runs {
        match run.source {
            Some(source) => out.extend_from_slice(&line[source * unit..(source + run.len) * unit]),
            None => extend(out, &padding.fill, run.len),
        }
    }
}

/// `n` units of padding.
fn extend(out: &mut Vec<u8>, fill: &[u8], n: usize) {
    match fill {
        [first, rest @ ..] if rest.iter().all(|b| b == first) => {
            out.resize(out.len() + n * fill.len(), *first);
        }
        _ => (0..n).for_each(|_| out.extend_from_slice(fill)),
    }
}

fn fill(unit: &[u8], bytes: u64, sink: &mut Sink<'_>) -> Result<(), PadError> {
    let mut left = bytes;
    let mut buffer = Vec::new();
    let room = usize::try_from(bytes).map_or(CHUNK, |n| n.min(CHUNK));
    extend(&mut buffer, unit, room.div_ceil(unit.len()));
    while left > 0 {
        let part = usize::try_from(left).map_or(buffer.len(), |n| n.min(buffer.len()));
        sink(&buffer[..part])?;
        left -= count(part);
    }
    Ok(())
}

/// What is not as it was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Dirt {
    /// Units of padding that are not the pad.
    pub(super) pads: u64,
    /// Repeated scales that are not what they repeat.
    pub(super) repeats: u64,
    /// First byte of the first such unit in the tensor.
    pub(super) first: Option<u64>,
}

impl Dirt {
    fn found(&mut self, at: u64, repeat: bool) {
        match repeat {
            true => self.repeats += 1,
            false => self.pads += 1,
        }
        self.first.get_or_insert(at);
    }
}

/// Reads a padded tensor once, gives the bytes of the one it was made of, and judges the rest.
pub(super) fn unpad(
    padding: &Padding,
    read: &mut Read<'_>,
    sink: &mut Sink<'_>,
) -> Result<Dirt, PadError> {
    let unit = padding.unit();
    let (from, to) = (padding.cols.from * unit, padding.cols.to * unit);
    let batch = (CHUNK / from.max(to).max(1)).max(1);
    let mut dirt = Dirt::default();
    let mut at = 0_u64;
    let mut out = Vec::new();
    let mut last = Vec::new();
    for _ in 0..padding.lead {
        let mut next = 0_usize;
        for run in &padding.rows.runs {
            // Sources never go back but to repeat the row before.
            let repeats = run
                .source
                .map_or(0, |s| next.saturating_sub(s).min(run.len));
            next = run.source.map_or(next, |source| source + run.len);
            let mut row = 0;
            while row < run.len {
                let rows = batch.min(run.len - row);
                let bytes = read(at..at + count(rows) * count(to))?;
                if run.source.is_none() {
                    pads(padding, &bytes, at, &mut dirt);
                } else {
                    out.clear();
                    for (n, line) in bytes.chunks_exact(to).enumerate() {
                        narrow(padding, line, at + count(n * to), &mut out, &mut dirt);
                    }
                    let again = repeats.saturating_sub(row).min(rows) * from;
                    for (n, line) in out[..again].chunks_exact(from).enumerate() {
                        let row = at + count(n * to);
                        let units = line.chunks_exact(unit).zip(last.chunks_exact(unit));
                        for (col, (is, was)) in units.enumerate() {
                            if is != was {
                                dirt.found(row + count(padded(padding, col) * unit), true);
                            }
                        }
                    }
                    if again < out.len() {
                        sink(&out[again..])?;
                        last = out[out.len() - from..].to_vec();
                    }
                }
                row += rows;
                at += count(bytes.len());
            }
        }
    }
    Ok(dirt)
}

/// The column in the padded row of unit `col` of the row without its padding and repeats.
fn padded(padding: &Padding, col: usize) -> usize {
    let (mut at, mut next) = (0_usize, 0_usize);
    for run in &padding.cols.runs {
        if let Some(source) = run.source {
            let again = next.saturating_sub(source).min(run.len);
            if col < source + run.len && col >= source + again {
                return at + col - source;
            }
            next = source + run.len;
        }
        at += run.len;
    }
    at
}

fn pads(padding: &Padding, bytes: &[u8], at: u64, dirt: &mut Dirt) {
    let unit = padding.unit();
    let zero = bytes.iter().fold(0, |any, b| any | (b ^ padding.fill[0])) == 0;
    if zero && padding.fill.iter().all(|b| *b == padding.fill[0]) {
        return;
    }
    for (n, code) in bytes.chunks_exact(unit).enumerate() {
        if code != padding.fill {
            dirt.found(at + count(n * unit), false);
        }
    }
}

/// One row without its columns' padding.
fn narrow(padding: &Padding, line: &[u8], at: u64, out: &mut Vec<u8>, dirt: &mut Dirt) {
    let unit = padding.unit();
    let (mut col, mut next) = (0_usize, 0_usize);
    for run in &padding.cols.runs {
        let bytes = &line[col * unit..(col + run.len) * unit];
        let place = at + count(col * unit);
        if let Some(source) = run.source {
            let again = next.saturating_sub(source).min(run.len) * unit;
            let last = out.len().saturating_sub(unit);
            for (n, code) in bytes[..again].chunks_exact(unit).enumerate() {
                if *code != out[last..] {
                    dirt.found(place + count(n * unit), true);
                }
            }
            out.extend_from_slice(&bytes[again..]);
            next = source + run.len;
        } else {
            pads(padding, bytes, place, dirt);
        }
        col += run.len;
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::axis::Axis;
    use super::*;
    use proptest::prelude::*;

    const FILLS: &[&[u8]] = &[&[0], &[0x80, 0x3f], &[0, 0, 0x80, 0x3f]];

    /// An axis of pieces, pads and repeats.
    fn axis() -> impl Strategy<Value = Axis> {
        let step = (0_usize..3, 1_usize..5);
        prop::collection::vec(step, 1..6).prop_map(|steps| {
            let (mut axis, mut next) = (Axis::empty(), 0);
            for (kind, len) in steps {
                match kind {
                    0 => axis.push(None, len),
                    1 if next > 0 => axis.push(Some(next - 1), 1),
                    _ => {
                        axis.push(Some(next), len);
                        next += len;
                    }
                }
            }
            if next == 0 {
                axis.push(Some(0), 1);
            }
            axis
        })
    }

    fn bytes_of(bytes: &[u8]) -> impl FnMut(Range<u64>) -> Result<Vec<u8>, PadError> + '_ {
        |r| Ok(bytes[r.start as usize..r.end as usize].to_vec())
    }

    #[test]
    fn every_dirty_unit_is_counted_with_the_place_of_the_first() {
        // Rows 0, 0, 1 of columns 0, 0, pad, 1: units of two bytes.
        let (mut rows, mut cols) = (Axis::empty(), Axis::empty());
        for source in [Some(0), Some(0), Some(1)] {
            rows.push(source, 1);
        }
        for source in [Some(0), Some(0), None, Some(1)] {
            cols.push(source, 1);
        }
        let fill = vec![0x80, 0x3f];
        let padding = Padding {
            lead: 1,
            rows,
            cols,
            fill,
            shape: Vec::new(),
        };
        let before = [1, 1, 2, 2, 3, 3, 4, 4];
        let mut after = Vec::new();
        let mut sink = |b: &[u8]| {
            after.extend_from_slice(b);
            Ok(())
        };
        pad(&padding, &mut bytes_of(&before), &mut sink).expect("it fits");
        assert_eq!(after.len(), 24);
        let dirt = |places: &[usize]| {
            let mut dirty = after.clone();
            for &at in places {
                dirty[at] ^= 1;
            }
            let mut nowhere = |_: &[u8]| Ok(());
            unpad(&padding, &mut bytes_of(&dirty), &mut nowhere).expect("it reads")
        };
        let found = |pads, repeats, first| Dirt {
            pads,
            repeats,
            first: Some(first),
        };
        assert_eq!(dirt(&[4, 5]), found(1, 0, 4));
        assert_eq!(dirt(&[4, 12, 20]), found(3, 0, 4));
        // The repeated column of row 0; both units of its repeat, whose own column repeats one of them.
        assert_eq!(dirt(&[2]), found(0, 1, 2));
        assert_eq!(dirt(&[8, 10, 14]), found(0, 2, 8));
        assert_eq!(dirt(&[14]), found(0, 1, 14));
    }

    proptest! {
        #[test]
        fn a_padded_tensor_gives_itself_back_and_shows_every_dirty_byte(
            lead in 1_usize..3, rows in axis(), cols in axis(), fill in prop::sample::select(FILLS), pick in any::<usize>(),
        ) {
            let padding = Padding { lead, rows, cols, fill: fill.to_vec(), shape: Vec::new() };
            let from = lead * padding.rows.from * padding.cols.from * fill.len();
            let before: Vec<u8> = (0..from).map(|n| (n * 37 % 251 + 1) as u8).collect();
            let mut after = Vec::new();
            pad(&padding, &mut bytes_of(&before), &mut |b| { after.extend_from_slice(b); Ok(()) })?;
            prop_assert_eq!(Some(after.len() as u64), padding.bytes());
            let undo = |after: &[u8]| {
                let mut back = Vec::new();
                let dirt = unpad(&padding, &mut bytes_of(after), &mut |b| { back.extend_from_slice(b); Ok(()) });
                dirt.map(|d| (d, back))
            };
            prop_assert_eq!(undo(&after)?, (Dirt::default(), before.clone()));
            // Any changed byte is dirt, or an element that is no longer the same.
            let at = pick % after.len();
            after[at] ^= 0x40;
            let (dirt, back) = undo(&after)?;
            prop_assert!(dirt != Dirt::default() || back != before, "byte {}", at);
        }
    }
}

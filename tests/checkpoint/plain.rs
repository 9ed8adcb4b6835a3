//! A loader of our own, for tests: nested loops over codes, no map, no plan, no mutant.
//!
//! Each rank takes an equal share of the intermediate axis and pads it to a slot; what a `Slip` says
//! goes wrong on the way. Long because all that a loader may do wrong stands in this one place. Facts: facts/upstream-padding.md 3.1, and peers.md 2.2 for the 128x4 index.

use crate::checkpoint::invent::{Invented, parameter};
use padproof::case::Case;
use padproof::layout::logical_of;
use padproof::num::Dtype;
use padproof::plan::Role;
use padproof::tensor::Logical;
use padproof::terms::Extent;
use safetensors::Dtype as Stored;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slip {
    Nothing,
    /// One pad after both halves.
    TailPad,
    /// The halves in the other order, everywhere or in the weights alone.
    Swapped,
    SwappedWeights,
    SwappedScales,
    /// Gate and up rows in turn, or up and gate rows.
    InTurn,
    InTurnUpFirst,
    /// w2 grown along its rows in place of its columns.
    WrongAxis,
    /// w2 and its scales grown so; w13 and its scales grown along their columns.
    WrongAxisBoth,
    WrongAxisFirst,
    /// Nothing padded, or no scales.
    Unpadded,
    ScalesUnpadded,
    /// The other nibble first.
    Nibbles,
    /// Scale columns of w2 one too far, on ranks after the first.
    ScaleColumn,
    /// The rank taken for the number of its first scale tile.
    TilesByRank,
    /// Scale rows of w2 one too far, in experts after the first.
    ScaleRow,
    /// A rank's channels, scales too, begin one block early.
    Early,
    /// Scales row by row where tiles are read.
    NotTiled,
    /// Scales in tiles, where they are read row by row.
    Tiled,
    /// Shares taken at the padded stride.
    Stride,
    /// Every rank takes the first share.
    FirstShare,
    /// Finite dirt that differs from place to place.
    DirtyW13,
    DirtyW2,
    /// Whatever: finite, NaN, in weights and scales.
    Uninitialised,
    NanPads,
    NanScales,
    MinusZero,
    /// Scales of second level, or of whole tensors.
    GateScaleForUp,
    UpScaleForGate,
    LargerScale,
    ScalesSwapped,
    LargestScale,
    Divisor,
    ScalesOfOtherExperts,
    FirstExpertsScale,
    /// Scales of the first rank on every one; or the whole axis on every rank.
    ScalesOfFirst,
    ScalesUncut,
    BiasDirty,
    BiasTailPad,
    BiasEverywhere,
    E8m0Bias,
    /// The same, and dirt in the padding of w13.
    E8m0BiasAndDirty,
    LastRankEmpty,
    /// The first rank's weights, scales and biases zero; or the last one's weights zero and its scales one.
    FirstRankCleared,
    LastRankOfOnes,
    /// w2, or w13, with its columns as rows; of codes that share a byte, columns of bytes.
    SecondTransposed,
    FirstTransposed,
    /// w2 with more rows, by another count than its columns should have.
    WrongAxisFar,
    /// Faults of two tensors at once.
    SwappedAndTransposed,
    EarlyAndScaleColumn,
    LastColumn,
    LastGroup,
    /// The fused rows of gate and up cut as one axis.
    FusedCut,
    /// The same, and padded once.
    FusedCutTail,
    /// Elements and dirt at once.
    SwappedAndDirty,
    /// Rows of w2 and w13 in a kernel's own order that no mutant knows.
    Repacked,
    /// Each rank takes the share of the one opposite.
    Exchanged,
    /// A rank's channels begin three early, scales with the block that the first one lies in.
    ThreeEarly,
    /// The first expert's second-level scales in both projections.
    FirstExpertsScales,
    /// The last expert alone.
    SwappedInOne,
    DirtyInOne,
    ThreeEarlyInOne,
    ExchangedInOne,
    /// The first and the last expert in each other's place.
    ExpertsExchanged,
}

/// Codes of one expert's matrix.
struct Matrix {
    rows: usize,
    cols: usize,
    codes: Vec<u32>,
}

impl Matrix {
    fn new(rows: usize, cols: usize, of: impl Fn(usize, usize) -> u32) -> Matrix {
        let codes = (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c)));
        Matrix {
            rows,
            cols,
            codes: codes.map(|(r, c)| of(r, c)).collect(),
        }
    }

    fn at(&self, r: usize, c: usize) -> u32 {
        self.codes[r * self.cols + c]
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Loader<'a> {
    pub(crate) case: &'a Case,
    pub(crate) logical: &'a Logical,
    /// Channels of a rank, padding included.
    pub(crate) slot: usize,
    /// Whether scales lie in tiles of 128 x 4, and up before gate.
    pub(crate) tiled: bool,
    pub(crate) up_first: bool,
    pub(crate) slip: Slip,
}

fn n(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

/// A scale block along an axis; 0 for all of it.
fn block(extent: Extent) -> usize {
    match extent {
        Extent::All => 0,
        Extent::Block(size) => n(size),
    }
}

fn blocks(len: usize, block: usize) -> usize {
    if block == 0 { 1 } else { len.div_ceil(block) }
}

impl Loader<'_> {
    fn halves(&self) -> usize {
        n(self.case.act.halves())
    }

    /// Rows that share a scale; 0 for all.
    fn row_block(&self) -> usize {
        self.case.w.scale().map_or(0, |grid| block(grid.rows))
    }

    pub(crate) fn share(&self) -> usize {
        n(self.case.i / self.case.tp)
    }

    fn code(&self, role: Role, e: usize, r: usize, c: usize) -> u32 {
        let tensor = logical_of(self.logical, role).unwrap();
        let [rows, cols] = [
            tensor.shape()[1],
            tensor.shape().get(2).copied().unwrap_or(1),
        ];
        let wide = tensor.bits() / 8;
        let at = ((e * rows + r) * cols + c) * wide;
        let bytes = &tensor.bytes()[at..at + wide];
        bytes.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
    }

    fn dtype(&self, role: Role) -> Dtype {
        match role {
            Role::W13 | Role::W2 => self.case.w.element(),
            Role::W13Scale | Role::W2Scale => self.case.w.scale().unwrap().dtype,
            _ => Dtype::F32,
        }
    }

    /// What fills padding: zero, or a scale of one, which is not what plans write.
    fn pad(&self, role: Role, place: usize) -> u32 {
        use Slip::*;
        let dtype = self.dtype(role);
        let scale = matches!(role, Role::W13Scale | Role::W2Scale);
        let clean = match dtype {
            Dtype::Int4 => 8,
            _ if scale => dtype.one_code(),
            _ => 0,
        };
        // From 1 on, and never the same twice in a row.
        let dirt = match dtype.bits() {
            4 => [1, 2, 3, 5][place % 4],
            8 => [0x21, 0x35, 0x42][place % 3],
            16 => 0x3c01 + u32::try_from(place % 97).unwrap(),
            _ => (1.5 + (place % 5) as f32).to_bits(),
        };
        let weights = matches!(role, Role::W13 | Role::W2);
        match self.slip {
            DirtyW13 | SwappedAndDirty | E8m0BiasAndDirty if role == Role::W13 => dirt,
            DirtyW2 if role == Role::W2 => dirt,
            Uninitialised if weights => match (place % 7, dtype.nan_code()) {
                (0, Some(nan)) => nan,
                _ => dirt,
            },
            NanPads if weights => dtype.nan_code().unwrap_or(clean),
            NanScales if scale => dtype.nan_code().unwrap_or(clean),
            MinusZero if weights && dtype.decode(1 << (dtype.bits() - 1)) == 0.0 => {
                1 << (dtype.bits() - 1)
            }
            BiasDirty if role == Role::W13Bias => dirt,
            _ => clean,
        }
    }

    /// Whether scales are written with another bias.
    fn shifts(&self, role: Role) -> bool {
        matches!(self.slip, Slip::E8m0Bias | Slip::E8m0BiasAndDirty)
            && self.dtype(role) == Dtype::E8m0
    }

    /// First channel of a rank.
    fn start(&self, rank: usize, role: Role) -> usize {
        let early = self.case.w.scale().map_or(0, |g| block(g.cols)).max(1);
        match self.slip {
            Slip::Stride => rank * self.slot,
            Slip::FirstShare => 0,
            Slip::EarlyAndScaleColumn if role == Role::W2Scale => rank * self.share(),
            Slip::Early | Slip::EarlyAndScaleColumn => (rank * self.share()).saturating_sub(early),
            Slip::ThreeEarly => (rank * self.share()).saturating_sub(3),
            _ => rank * self.share(),
        }
    }

    /// Channels of a rank that are real.
    fn real(&self, rank: usize, role: Role) -> usize {
        self.share()
            .min(n(self.case.i).saturating_sub(self.start(rank, role)))
    }

    /// The row of halves that a stored row holds: half and channel of the rank; none for padding.
    /// Counted in `per` elements that share one, `real` of them real, `slot` stored a half.
    fn row(&self, role: Role, stored: usize, real: usize, slot: usize) -> Option<(usize, usize)> {
        use Slip::*;
        let halves = self.halves();
        let swapped = match self.slip {
            Swapped | SwappedAndDirty | SwappedAndTransposed => true,
            SwappedWeights => role == Role::W13,
            SwappedScales => role == Role::W13Scale,
            _ => false,
        };
        let tail = self.slip == TailPad
            || self.slip == FusedCutTail
            || self.slip == BiasTailPad && role == Role::W13Bias;
        let up_first = halves == 2 && self.up_first != swapped;
        let half = |n: usize| if up_first { 1 - n } else { n };
        match () {
            // A block of rows has no rows in turn.
            () if halves == 2
                && matches!(self.slip, InTurn | InTurnUpFirst)
                && (self.row_block() <= 1 || role != Role::W13Scale) =>
            {
                let (turn, channel) = (stored % 2, stored / 2);
                let half = if self.slip == InTurn { turn } else { 1 - turn };
                (channel < real).then_some((half, channel))
            }
            () if tail => {
                let found = stored / real.max(1);
                (found < halves).then(|| (half(found), stored % real))
            }
            () => {
                let channel = stored % slot;
                (channel < real).then(|| (half(stored / slot), channel))
            }
        }
    }

    /// The row of [gate, up] that a rank's channel of a half is taken from, in rows of `per` that share one.
    fn source(
        &self,
        rank: usize,
        half: usize,
        channel: usize,
        (start, per): (usize, usize),
    ) -> usize {
        let cut = matches!(self.slip, Slip::FusedCut | Slip::FusedCutTail) && self.halves() == 2;
        match cut && self.share().is_multiple_of(per) {
            true => (2 * rank + half) * (self.share() / per) + channel,
            false => half * blocks(n(self.case.i), per) + start + channel,
        }
    }

    /// One expert's matrix of a role on a rank, before storage.
    fn matrix(&self, role: Role, rank: usize, e: usize) -> Matrix {
        use Slip::*;
        let (hidden, i, halves) = (n(self.case.h), n(self.case.i), self.halves());
        let grid = self.case.w.scale();
        let (rb, cb) = grid.map_or((0, 0), |g| (block(g.rows), block(g.cols)));
        let from = match self.slip {
            ScalesOfFirst if matches!(role, Role::W13Scale | Role::W2Scale) => 0,
            _ => rank,
        };
        let (start, real) = (self.start(from, role), self.real(from, role));
        let scale = matches!(role, Role::W13Scale | Role::W2Scale);
        let slot = match self.slip {
            Unpadded => real,
            ScalesUnpadded if scale => real,
            _ => self.slot,
        };
        let lost = real.checked_sub(1).filter(|_| self.slip == LastColumn);
        let first_e = match self.slip {
            FirstExpertsScale | FirstExpertsScales => 0,
            _ => e,
        };
        let pad = |r: usize, c: usize| self.pad(role, 31 * r + 7 * c + rank);
        match role {
            Role::W13 if self.slip == WrongAxisFirst => {
                Matrix::new(halves * real, hidden + slot - real, |r, c| {
                    match c < hidden {
                        true => {
                            let (half, channel) = self.row(role, r, real, real).unwrap();
                            self.code(role, e, half * i + start + channel, c)
                        }
                        false => pad(r, c),
                    }
                })
            }
            Role::W13 => Matrix::new(halves * slot, hidden, |r, c| {
                match self.row(role, r, real, slot) {
                    Some((half, channel)) => {
                        self.code(role, e, self.source(rank, half, channel, (start, 1)), c)
                    }
                    None => pad(r, c),
                }
            }),
            Role::W2 if matches!(self.slip, WrongAxis | WrongAxisBoth | WrongAxisFar) => {
                let more = if self.slip == WrongAxisFar { 8 } else { 0 };
                Matrix::new(hidden + slot - real + more, real, |r, c| match r < hidden {
                    true => self.code(role, e, r, start + c),
                    false => pad(r, c),
                })
            }
            Role::W2 => Matrix::new(hidden, slot, |r, c| match c < real && Some(c) != lost {
                true => self.code(role, e, r, start + c),
                false => pad(r, c),
            }),
            // One scale of each half: engines keep gate's first, whatever the rows' order.
            Role::W13Scale if rb == 0 => Matrix::new(halves, blocks(hidden, cb), |r, c| match cb {
                0 => self.whole_scale(role, e, r),
                _ => self.code(role, e, r, c),
            }),
            Role::W13Scale => {
                let uncut = self.slip == ScalesUncut;
                let (start, real, slot) = match uncut {
                    true => (0, i, i),
                    false => (start, real, slot),
                };
                let start = match self.slip {
                    TilesByRank => rank * blocks(real, rb),
                    _ => start / rb,
                };
                let all = blocks(i, rb);
                let grown = hidden + slot - real;
                let (held, slot) = (blocks(real, rb), blocks(slot, rb));
                let real = match self.slip {
                    TilesByRank => held.min(all.saturating_sub(start)),
                    _ => held,
                };
                if self.slip == WrongAxisFirst {
                    let cols = blocks(hidden, cb);
                    return Matrix::new(halves * real, blocks(grown, cb), |r, c| match c < cols {
                        true => {
                            let (half, channel) = self.row(role, r, real, real).unwrap();
                            self.code(role, e, half * all + start + channel, c)
                        }
                        false => pad(r, c),
                    });
                }
                Matrix::new(halves * slot, blocks(hidden, cb), |r, c| {
                    match self.row(role, r, real, slot) {
                        Some((half, channel)) => {
                            self.code(role, e, self.source(rank, half, channel, (start, rb)), c)
                        }
                        None => pad(r, c),
                    }
                })
            }
            Role::W2Scale if cb == 0 => {
                Matrix::new(blocks(hidden, rb).max(1), 1, |r, c| match rb {
                    0 => self.whole_scale(role, e, r),
                    _ => self.code(role, e, r, c),
                })
            }
            Role::W2Scale => {
                let (start, real, slot) = match self.slip == ScalesUncut {
                    true => (0, i, i),
                    false => (start, real, slot),
                };
                let start = match self.slip {
                    TilesByRank => rank * blocks(real, cb),
                    _ => start / cb,
                };
                let grown = hidden + slot - real;
                let (held, slot) = (blocks(real, cb), blocks(slot, cb));
                let real = match self.slip {
                    TilesByRank => held.min(blocks(i, cb).saturating_sub(start)),
                    _ => held,
                };
                let rows = blocks(hidden, rb);
                if self.slip == WrongAxisBoth {
                    return Matrix::new(blocks(grown, rb), real, |r, c| match r < rows {
                        true => self.code(role, e, r, start + c),
                        false => pad(r, c),
                    });
                }
                let lost = real.checked_sub(1).filter(|_| self.slip == LastGroup);
                let plain = |r: usize, c: usize| match c < real {
                    true if Some(c) == lost => 0,
                    true => self.code(role, e, r, start + c),
                    false => pad(r, c),
                };
                Matrix::new(rows, slot, |r, c| match self.slip {
                    ScaleColumn | EarlyAndScaleColumn if rank > 0 => plain(r, (c + 1) % slot),
                    ScaleRow if e > 0 => plain((r + rows - 1) % rows, c),
                    _ => plain(r, c),
                })
            }
            // Engines keep gate's first, whatever the rows' order.
            Role::W13Global => Matrix::new(halves, 1, |r, _| {
                let first = self.slip == FirstExpertsScales;
                self.whole_scale(role, if first { 0 } else { e }, r)
            }),
            Role::W2Global => Matrix::new(1, 1, |r, _| self.whole_scale(role, first_e, r)),
            Role::W13Bias => Matrix::new(halves * slot, 1, |r, c| {
                match self.row(role, r, real, slot) {
                    Some((half, channel)) => {
                        self.code(role, e, self.source(rank, half, channel, (start, 1)), c)
                    }
                    None => pad(r, c),
                }
            }),
            Role::W2Bias => Matrix::new(hidden, 1, |r, c| {
                match rank == 0 || self.slip == BiasEverywhere {
                    true => self.code(role, e, r, c),
                    false => 0,
                }
            }),
        }
    }

    /// The scale of a whole tensor: gate's, up's, or that of w2.
    fn whole_scale(&self, role: Role, e: usize, half: usize) -> u32 {
        let halves = logical_of(self.logical, role).unwrap().shape()[1];
        let value = |e, half| f32::from_bits(self.code(role, e, half, 0));
        let experts = n(self.case.e);
        let all = || (0..experts).flat_map(|e| (0..halves).map(move |h| (e, h)));
        let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, f32::max);
        let is = match self.slip {
            Slip::GateScaleForUp => value(e, 0),
            Slip::UpScaleForGate => value(e, halves - 1),
            Slip::LargerScale => largest(&mut (0..halves).map(|half| value(e, half))),
            Slip::ScalesSwapped => value(e, halves - 1 - half),
            Slip::LargestScale => largest(&mut all().map(|(e, half)| value(e, half))),
            Slip::Divisor => 1.0 / value(e, half),
            Slip::ScalesOfOtherExperts => value((e + 1) % experts, half),
            _ => value(e, half),
        };
        is.to_bits()
    }

    /// A matrix as bytes.
    fn bytes(&self, role: Role, matrix: &Matrix) -> Vec<u8> {
        let bits = self.dtype(role).bits();
        let scale = matches!(role, Role::W13Scale | Role::W2Scale);
        if bits == 4 {
            let pairs = matrix.codes.chunks(2);
            let low_first = self.slip != Slip::Nibbles;
            return pairs
                .map(|two| two.iter().map(|c| c.to_le_bytes()[0]).collect::<Vec<u8>>())
                .map(|two| {
                    if low_first {
                        two[0] | two[1] << 4
                    } else {
                        two[1] | two[0] << 4
                    }
                })
                .collect();
        }
        if scale && (self.tiled || self.slip == Slip::Tiled) && bits == 8 {
            return self.tiles(matrix);
        }
        let wide = n(bits) / 8;
        let shift = self.shifts(role);
        let code = |c: &u32| if shift { c.saturating_sub(2) } else { *c };
        matrix
            .codes
            .iter()
            .flat_map(|c| code(c).to_le_bytes()[..wide].to_vec())
            .collect()
    }

    /// Scales in tiles of 128 rows and 4 columns (facts/peers.md 2.2), or what one forgets.
    fn tiles(&self, matrix: &Matrix) -> Vec<u8> {
        let (rows, cols) = (
            matrix.rows.next_multiple_of(128),
            matrix.cols.next_multiple_of(4),
        );
        let mut bytes = vec![0; rows * cols];
        for r in 0..matrix.rows {
            for c in 0..matrix.cols {
                let tile = ((r / 128) * (cols / 4) + c / 4) * 512;
                let at = match self.slip {
                    Slip::NotTiled => r * cols + c,
                    _ => tile + (r % 32) * 16 + (r % 128) / 32 * 4 + c % 4,
                };
                let code = matrix.at(r, c);
                let shift = self.shifts(Role::W2Scale);
                bytes[at] = if shift { code.saturating_sub(2) } else { code }.to_le_bytes()[0];
            }
        }
        bytes
    }

    fn roles(&self) -> Vec<Role> {
        let there = |role: &Role| logical_of(self.logical, *role).is_some();
        Role::ALL.into_iter().filter(there).collect()
    }

    /// What a tensor holds throughout, where its rank loads nothing.
    fn unloaded(&self, role: Role, rank: usize) -> Option<u32> {
        let last = rank + 1 == n(self.case.tp);
        let weight = matches!(role, Role::W13 | Role::W2);
        let scale = matches!(role, Role::W13Scale | Role::W2Scale);
        match self.slip {
            Slip::LastRankEmpty if last && weight => Some(0),
            Slip::FirstRankCleared if rank == 0 => Some(0),
            Slip::LastRankOfOnes if last && weight => Some(0),
            Slip::LastRankOfOnes if last && scale => Some(self.dtype(role).one_code()),
            _ => None,
        }
    }

    /// What goes wrong in one expert.
    fn of_expert(&self, e: usize) -> Self {
        let last = e + 1 == n(self.case.e);
        let slip = match (self.slip, last) {
            (Slip::SwappedInOne, true) => Slip::Swapped,
            (Slip::DirtyInOne, true) => Slip::DirtyW13,
            (Slip::ThreeEarlyInOne, true) => Slip::ThreeEarly,
            (Slip::ExchangedInOne, true) => Slip::Exchanged,
            (slip, _) => slip,
        };
        Loader { slip, ..*self }
    }

    /// The rank whose share a rank takes.
    fn from(&self, rank: usize) -> usize {
        match self.slip {
            Slip::Exchanged => n(self.case.tp) - 1 - rank,
            _ => rank,
        }
    }

    /// The expert that lies in the place of one.
    fn expert(&self, e: usize) -> usize {
        let last = n(self.case.e) - 1;
        match self.slip {
            Slip::ExpertsExchanged if e == 0 || e == last => last - e,
            _ => e,
        }
    }

    /// The dump of every rank.
    pub(crate) fn dump(&self) -> Invented {
        let mut file = Invented::default();
        for rank in 0..n(self.case.tp) {
            for role in self.roles() {
                let mut bytes = Vec::new();
                for e in 0..n(self.case.e) {
                    let loader = self.of_expert(e);
                    let mut matrix = loader.matrix(role, loader.from(rank), self.expert(e));
                    match (self.slip, role) {
                        (Slip::Repacked, Role::W13 | Role::W2) => matrix.codes = repacked(&matrix),
                        (Slip::SecondTransposed | Slip::SwappedAndTransposed, Role::W2)
                        | (Slip::FirstTransposed, Role::W13) => {
                            let together = 8_u64.div_ceil(self.dtype(role).bits());
                            matrix.codes = transposed(&matrix, n(together));
                        }
                        _ => {}
                    }
                    if let Some(code) = self.unloaded(role, rank) {
                        matrix.codes.fill(code);
                    }
                    bytes.extend(self.bytes(role, &matrix));
                }
                let (dtype, wide) = match (self.dtype(role).bits(), role) {
                    (32, _) => (Stored::F32, 4),
                    (16, _) => (Stored::U16, 2),
                    _ => (Stored::U8, 1),
                };
                let name = format!("rank{rank}.{}", parameter(role));
                file.add(name, dtype, &[bytes.len() / wide], bytes);
            }
        }
        file
    }
}

/// Columns first, odd ones before even ones: what a kernel's own order might be.
fn repacked(matrix: &Matrix) -> Vec<u32> {
    let cols = (1..matrix.cols)
        .step_by(2)
        .chain((0..matrix.cols).step_by(2));
    let places = cols.flat_map(|c| (0..matrix.rows).map(move |r| (r, c)));
    places.map(|(r, c)| matrix.at(r, c)).collect()
}

/// Column by column, so many of them together.
fn transposed(matrix: &Matrix, together: usize) -> Vec<u32> {
    let mut codes = Vec::new();
    for c in (0..matrix.cols).step_by(together) {
        for r in 0..matrix.rows {
            codes.extend((c..c + together).map(|c| matrix.at(r, c)));
        }
    }
    codes
}

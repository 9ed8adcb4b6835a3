//! What a loader, right or wrong, makes of a layer, with its padding marked: elements must be equal,
//! padding only inert.
//!
//! It must not name faults. Layer 7.

use super::inert::{Inert, Judgement};
use crate::checkpoint::Stored;
use crate::layout::{
    Grid, Map, PackedInputs, Pads, logical_of, map, pack, pack_layer, pad_code, roles, set_pads,
};
use crate::mutant::{Mutant, Stage, repack};
use crate::num::Dtype;
use crate::plan::{Plan, Role};
use crate::tensor::{Logical, Tensor};

/// One packing three times: as planned, with another code in its logical padding, and with another
/// in what only storage adds. Where they agree an element stands, or dirt that a mutant wrote.
#[derive(Clone)]
pub(super) struct Variants([PackedInputs; 3]);

/// What may stand in padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    /// What decodes to zero, or a finite scale.
    Inert,
    /// Anything: the padding is judged for itself.
    Any,
}

/// A tensor of a dump with its bytes.
pub(super) struct Held<'a> {
    pub(super) stored: &'a Stored,
    /// The true plan's map of the experts that are looked at.
    pub(super) map: Map,
    /// What may stand in its padding.
    pub(super) inert: Inert,
    pub(super) bytes: Vec<u8>,
}

impl<'a> Held<'a> {
    pub(super) fn of(plan: &Plan, stored: &'a Stored, map: Map, bytes: Vec<u8>) -> Held<'a> {
        Held {
            stored,
            inert: Inert::under(plan, &map),
            map,
            bytes,
        }
    }
}

impl Variants {
    /// What the plan makes of a layer; none where it cannot.
    pub(super) fn of(plan: &Plan, logical: &Logical) -> Option<Variants> {
        let planned = pack_layer(plan, logical).ok()?;
        let mut all = Variants([planned.clone(), planned.clone(), planned]);
        let roles: Vec<Role> = roles(plan).collect();
        all.mark(plan, &roles);
        Some(all)
    }

    /// What a mutant makes of it; none where it changes nothing, cannot, or leaves elements where the
    /// dump has others.
    pub(super) fn wrong(
        &self,
        mutant: &Mutant,
        (plan, logical): (&Plan, &Logical),
        open: &[&Held<'_>],
        padding: Padding,
    ) -> Option<Variants> {
        match mutant.stage {
            Stage::Layout(change) => Variants::laid_out(&change(plan)?, logical, open, padding),
            Stage::LayoutOf(change, roles) => {
                let (wrong, mut all) = (change(plan)?, self.clone());
                for packed in &mut all.0 {
                    repack(&wrong, roles, logical, packed);
                }
                all.mark(&wrong, roles);
                Some(all)
            }
            Stage::Bytes(change) => {
                let mut all = self.clone();
                let applies = change(plan, &mut all.0[0]);
                // Where anything may stand in padding, what is marked tells where that is.
                let looked = match padding {
                    Padding::Inert => 1,
                    Padding::Any => 2,
                };
                for packed in &mut all.0[1..looked] {
                    change(plan, packed);
                }
                let of = |n: usize, held: &Held<'_>| {
                    let rank = all.0[n].ranks.get(held.stored.rank)?;
                    rank.get(held.stored.role)
                };
                let fits = |held: &&Held<'_>| {
                    let marked = of(1, held).filter(|_| padding == Padding::Any);
                    of(0, held).is_some_and(|made| may_be(made, held, marked))
                };
                open.iter().all(fits).then_some(())?;
                for packed in &mut all.0[looked..] {
                    change(plan, packed);
                }
                applies.then_some(all)
            }
            Stage::Plan(change) => {
                let mut wrong = plan.clone();
                change(&mut wrong).then_some(())?;
                Variants::laid_out(&wrong, logical, open, padding)
            }
            Stage::Reload(_) | Stage::Output(_) => None,
        }
    }

    /// What another plan makes of the layer; none as for [`Variants::wrong`].
    pub(super) fn laid_out(
        wrong: &Plan,
        logical: &Logical,
        open: &[&Held<'_>],
        padding: Padding,
    ) -> Option<Variants> {
        // What has another size is none of these, and need not be packed.
        let of_size = |held: &&Held<'_>| {
            let wrong = map(wrong, held.stored.role, held.stored.rank);
            wrong.is_ok_and(|wrong| wrong.bytes() == held.bytes.len())
        };
        open.iter().all(of_size).then_some(())?;
        // The smallest says most often that it is none of these.
        if let Some(held) = open.iter().min_by_key(|held| held.bytes.len()) {
            let (role, source) = (held.stored.role, logical_of(logical, held.stored.role)?);
            let map = map(wrong, role, held.stored.rank).ok()?;
            (source.bytes().len() == map.logical_bytes()).then_some(())?;
            let made = pack(&map, role.name(), source, pad_code(wrong, role));
            let marked =
                (padding == Padding::Any).then(|| pack(&map, role.name(), source, mark(map.dtype)));
            may_be(&made, held, marked.as_ref()).then_some(())?;
        }
        Variants::of(wrong, logical)
    }

    /// The same layer with tensors packed anew as another plan says, where it can say them.
    pub(super) fn repacked(&self, plan: &Plan, logical: &Logical) -> Variants {
        let (mut all, roles) = (self.clone(), roles(plan).collect::<Vec<Role>>());
        for packed in &mut all.0 {
            repack(plan, &roles, logical, packed);
        }
        all.mark(plan, &roles);
        all
    }

    /// Writes other codes into the padding of the second and the third.
    fn mark(&mut self, plan: &Plan, roles: &[Role]) {
        let [_, logical, storage] = &mut self.0;
        for (packed, which) in [(logical, Pads::Logical), (storage, Pads::Storage)] {
            for (n, rank) in packed.ranks.iter_mut().enumerate() {
                for &role in roles {
                    let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get_mut(role)) else {
                        continue;
                    };
                    if tensor.bytes().len() == map.bytes() {
                        set_pads(&map, tensor, which, mark(map.dtype));
                    }
                }
            }
        }
    }

    /// The bytes of each for a tensor of the dump, on some rank.
    fn bytes_of(&self, rank: usize, held: &Held<'_>) -> Option<[&[u8]; 3]> {
        let of = |n: usize| -> Option<&[u8]> {
            let rank = self.0[n].ranks.get(rank)?;
            Some(rank.get(held.stored.role)?.bytes())
        };
        Some([of(0)?, of(1)?, of(2)?])
    }

    /// Whether a tensor of the dump is this one, its padding aside.
    pub(super) fn same(&self, held: &Held<'_>, padding: Padding) -> bool {
        self.same_of(held.stored.rank, held, padding)
    }

    /// Whether a tensor of the dump is that of some rank, its padding aside.
    pub(super) fn same_of(&self, rank: usize, held: &Held<'_>, padding: Padding) -> bool {
        let Some([planned, logical, storage]) = self.bytes_of(rank, held) else {
            return false;
        };
        if planned.len() != held.bytes.len() {
            return false;
        }
        if planned == held.bytes {
            return true;
        }
        let grid = held.map.grid;
        let rule = &held.inert;
        let free = grid.storage.pad_code().is_none();
        let mut differing = differing(grid, planned, &held.bytes);
        let fits = differing.all(|n| {
            let at = grid.address(n);
            let read = |bytes: &[u8]| grid.read(bytes, at);
            let (wanted, actual) = (read(planned), read(&held.bytes));
            let stored = read(storage) != wanted;
            let element = !stored && read(logical) == wanted;
            wanted == actual
                || !element
                    && (padding == Padding::Any
                        || stored && free
                        || !matches!(rule.judge(actual), Judgement::Loud | Judgement::NaN))
        });
        // Where anything may stand in padding, padding alone explains nothing.
        fits && (padding == Padding::Inert || self.has_elements_of(rank, held))
    }

    /// Whether anything but padding is in a tensor of the dump's rank.
    pub(super) fn has_elements(&self, held: &Held<'_>) -> bool {
        self.has_elements_of(held.stored.rank, held)
    }

    /// The same of what is some rank's.
    fn has_elements_of(&self, rank: usize, held: &Held<'_>) -> bool {
        self.elements(rank, held).next().is_some()
    }

    /// Every element of a tensor of some rank, as it is here and as the dump holds it; none where the dump's has
    /// another size.
    pub(super) fn elements(
        &self,
        rank: usize,
        held: &Held<'_>,
    ) -> impl Iterator<Item = (u32, u32)> {
        let grid = held.map.grid;
        let all = self.bytes_of(rank, held);
        let all = all.filter(|[planned, ..]| planned.len() == held.bytes.len());
        let codes = held.bytes.len() * 8 / grid.bits;
        all.into_iter()
            .flat_map(move |[planned, logical, storage]| {
                (0..codes).filter_map(move |n| {
                    let at = grid.address(n);
                    let codes = || (grid.read(planned, at), grid.read(&held.bytes, at));
                    is_element(grid, [planned, logical, storage], n).then(codes)
                })
            })
    }

    /// Whether these would change an element of a tensor (of scales one they make; of others one they overwrite too), or,
    /// changing padding alone, wrote all of that in the dump. That the dump holds what they make was asked before.
    pub(super) fn explains(&self, right: &Variants, held: &Held<'_>) -> bool {
        let scales = matches!(held.stored.role, Role::W13Scale | Role::W2Scale);
        let rank = held.stored.rank;
        let (Some(made), Some(true_ones)) = (self.bytes_of(rank, held), right.bytes_of(rank, held))
        else {
            return false;
        };
        if made[0].len() != held.bytes.len() || true_ones[0].len() != held.bytes.len() {
            return true;
        }
        let grid = held.map.grid;
        let element = |of: [&[u8]; 3], n| is_element(grid, of, n);
        let (mut written, mut left) = (false, false);
        for n in 0..held.bytes.len() * 8 / grid.bits {
            let at = grid.address(n);
            let [code, wanted] = [made, true_ones].map(|[planned, ..]| grid.read(planned, at));
            if code != wanted && (element(made, n) || !scales && element(true_ones, n)) {
                return true;
            }
            let is = grid.read(&held.bytes, at);
            written |= code != wanted && is == code;
            left |= code != wanted && is != code;
        }
        !scales && written && !left
    }

    /// Whether a tensor of the dump holds most of the elements that these leave out, those apart that might be
    /// padding: then nothing was left out.
    pub(super) fn denied(&self, right: &Variants, held: &Held<'_>) -> bool {
        let rank = held.stored.rank;
        let (Some(made), Some(true_ones)) = (self.bytes_of(rank, held), right.bytes_of(rank, held))
        else {
            return false;
        };
        let same_size = |bytes: &&[u8]| bytes.len() == held.bytes.len();
        if !made.iter().chain(&true_ones).all(same_size) {
            return false;
        }
        let grid = held.map.grid;
        let (mut left_out, mut there) = (0_u64, 0_u64);
        for n in 0..held.bytes.len() * 8 / grid.bits {
            let at = grid.address(n);
            let wanted = grid.read(true_ones[0], at);
            let loud = matches!(held.inert.judge(wanted), Judgement::Loud | Judgement::NaN);
            if loud && is_element(grid, true_ones, n) && !is_element(grid, made, n) {
                left_out += 1;
                there += u64::from(grid.read(&held.bytes, at) == wanted);
            }
        }
        there > left_out / 2
    }

    /// The codes of a tensor as planned and as held, each in order of size; none where its size is
    /// another one.
    pub(super) fn sorted(&self, held: &Held<'_>) -> Option<[Vec<u32>; 2]> {
        let tensor = self.0[0]
            .ranks
            .get(held.stored.rank)?
            .get(held.stored.role)?;
        let grid = held.map.grid;
        let codes = |bytes: &[u8]| {
            let all = 0..bytes.len() * 8 / grid.bits;
            let mut codes: Vec<u32> = all.map(|n| grid.read(bytes, grid.address(n))).collect();
            codes.sort_unstable();
            codes
        };
        let fits = tensor.bytes().len() == held.bytes.len();
        fits.then(|| [codes(tensor.bytes()), codes(&held.bytes)])
    }
}

/// Whether code number `n` of a tensor is one of an element, or dirt that a mutant wrote: where all three agree.
fn is_element(grid: Grid, all: [&[u8]; 3], n: usize) -> bool {
    let at = grid.address(n);
    let [planned, logical, storage] = all.map(|bytes| grid.read(bytes, at));
    planned == logical && planned == storage
}

/// Whether a tensor may be this one, but for places that may be padding: a look that costs little. `marked` is the
/// same with other codes in its padding, where anything may stand there.
fn may_be(made: &Tensor, held: &Held<'_>, marked: Option<&Tensor>) -> bool {
    let (grid, rule, bytes) = (held.map.grid, &held.inert, made.bytes());
    let marked = marked.map(Tensor::bytes);
    if bytes.len() != held.bytes.len() || marked.is_some_and(|m| m.len() != bytes.len()) {
        return false;
    }
    // Where storage may hold anything, so may every place of that tensor; and what it alone adds is not marked.
    let [_, rows, cols] = held.map.shape();
    let unmarked = marked.is_some() && (grid.rows, grid.cols) != (rows, cols);
    if grid.storage.pad_code().is_none() || unmarked {
        return true;
    }
    differing(grid, bytes, &held.bytes).all(|n| {
        let at = grid.address(n);
        let (wanted, actual) = (grid.read(bytes, at), grid.read(&held.bytes, at));
        wanted == actual
            || match marked {
                Some(marked) => grid.read(marked, at) != wanted,
                None => !matches!(rule.judge(actual), Judgement::Loud | Judgement::NaN),
            }
    })
}

/// The codes, in storage order, of the parts of two tensors of one size that are not the same.
fn differing<'a>(grid: Grid, a: &'a [u8], b: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    // Codes that share bytes share two at most.
    const PART: usize = 64;
    let parts = a.chunks(PART).zip(b.chunks(PART)).enumerate();
    let differ = parts.filter(|(_, (a, b))| a != b);
    differ.flat_map(move |(n, (a, _))| {
        let first = n * PART * 8 / grid.bits;
        first..first + a.len() * 8 / grid.bits
    })
}

/// A code that no loader writes into padding: 3.0 or so.
fn mark(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 3.25_f32.to_bits(),
        Dtype::F16 => 0x4280,
        Dtype::Bf16 => 0x4050,
        Dtype::E4m3 | Dtype::E4m3Fnuz => 0x45,
        Dtype::E5m2 => 0x43,
        Dtype::E2m1 => 5,
        Dtype::E8m0 => 0x93,
        Dtype::Int4 => 0xd,
        Dtype::Int8 => 0x35,
    }
}

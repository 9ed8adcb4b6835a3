//! Draws one case from a domain, so that it is valid and (nearly always) can be planned.
//!
//! It must not filter or retry: each choice is made after those it depends on. Layer 8.

use super::domain::{Axis, Domain, GROUPS};
use super::source::{Counter, Source};
use crate::case::{Case, PadSpec, Scheme};
use crate::num::Dtype;
use crate::plan::storage_granule;
use crate::terms::{
    ActQuant, Activation, Extent, Fill, Nibble, Order, Place, Route, Split, Storage, Stores,
    WeightFormat,
};

/// Case number `index` under `seed`; the same on every machine and in any order.
pub fn draw(domain: &Domain, seed: u64, index: u64) -> Case {
    draw_from(
        domain,
        &mut Counter {
            seed,
            index,
            next: 0,
        },
    )
}

/// Which features a case may use: all, or under swarm half of them at random. Those that a whole
/// property stands on are on seven times of eight, so that most cases prove something of each.
struct Mask(u64);

/// Bits of the mask, one per feature that can be switched off.
#[derive(Clone, Copy)]
enum Feature {
    Format,
    Activation,
    Route,
    Factor,
    ExpertParallel,
    Split,
    Order,
    Storage,
    Nibble,
    InputQuant,
    MidQuant,
    MidBf16,
    Bias,
    HiddenPad,
    TokenPad,
    Edges,
    AllExperts,
    WeightStorage,
}

/// Bits of the mask after which the second and the third bit of each feature follow.
const FEATURES: u32 = 20;

impl Mask {
    fn draw(domain: &Domain, source: &mut impl Source) -> Mask {
        Mask(if domain.swarm {
            source.bits()
        } else {
            u64::MAX
        })
    }

    fn on(&self, feature: Feature) -> bool {
        self.0 >> (feature as u32) & 1 == 1
    }

    /// The same for a feature that is off only when all of its three bits say so.
    fn mostly_on(&self, feature: Feature) -> bool {
        let bits = self.0 | self.0 >> FEATURES | self.0 >> (2 * FEATURES);
        bits >> feature as u32 & 1 == 1
    }

    /// The same for a feature that is on only when all three say so.
    fn rarely_on(&self, feature: Feature) -> bool {
        let bits = self.0 & self.0 >> FEATURES & self.0 >> (2 * FEATURES);
        bits >> feature as u32 & 1 == 1
    }

    /// One of the list if the feature is on, else the plain one.
    fn pick<T: Copy>(&self, feature: Feature, list: &[T], source: &mut impl Source) -> T {
        if self.on(feature) {
            source.pick(list)
        } else {
            list[0]
        }
    }
}

pub(super) fn draw_from<S: Source>(domain: &Domain, source: &mut S) -> Case {
    let mask = Mask::draw(domain, source);
    let fill = if source.chance(1, 2) {
        Fill::Exact
    } else {
        source.pick(domain.fills)
    };
    let w = if mask.mostly_on(Feature::Format) {
        source.pick(domain.formats)
    } else {
        domain.formats[0]
    };
    let act = activation(domain, &mask, fill, source);
    let route = router(domain, &mask, fill, source);
    let (input_quants, mid_quants) = (domain.input_quants, domain.mid_quants);
    // E4M3 on the fly widens the reference's bound beyond most outputs: sums over ranks then
    // prove nothing, so these are the rarest features.
    let qx = if mask.rarely_on(Feature::InputQuant) {
        source.pick(input_quants)
    } else {
        input_quants[0]
    };
    let qh = if mask.rarely_on(Feature::MidQuant) {
        source.pick(mid_quants)
    } else {
        mid_quants[0]
    };
    let (tp, ep) = ranks(domain, &mask, qh, source);
    let (e, k, groups, keep) = experts(domain, &mask, route, ep, source);
    let mut pad = padding(domain, &mask, w, act, source);
    let i = intermediate(domain, &mask, w, tp / ep, &mut pad, source);
    let edges = if mask.on(Feature::Edges) {
        domain.edges
    } else {
        0
    };
    let hidden_steps = [pad.hidden, row_group(w), 16, 32];
    let h = size(&domain.hidden, &hidden_steps, edges, source).next_multiple_of(row_group(w));
    let mut case = Case {
        t: tokens(domain, pad.tokens, edges, source),
        e,
        k,
        h,
        i,
        tp,
        ep,
        act,
        route,
        groups,
        keep,
        factor: mask.pick(Feature::Factor, domain.factors, source),
        zero: 0,
        w,
        qx,
        qh,
        mid_bf16: domain.mid_bf16 && mask.on(Feature::MidBf16) && source.chance(1, 2),
        bias: mask.pick(Feature::Bias, domain.biases, source),
        scheme: Scheme::Spelled(pad),
        fill,
        seed: source.bits() >> 32,
    };
    // Last, so that other cases stay what they were; the first of a fuzzer's choices is none.
    if domain.zero_max > 0 && case.route.takes_identity() && source.below(32) == 31 {
        case.zero = source.within(1, domain.zero_max);
        if source.chance(1, 4) {
            case.k = case.choices();
        }
    }
    case
}

/// Tokens; where none are allowed, one case in 32 has none, since those prove little.
fn tokens(domain: &Domain, granule: u64, edges: u64, source: &mut impl Source) -> u64 {
    if domain.tokens.min == 0 && source.chance(1, 32) {
        return 0;
    }
    let some = Axis {
        min: domain.tokens.min.max(1),
        ..domain.tokens
    };
    size(&some, &[granule], edges, source)
}

/// Half of the exact fills get an activation under which they stay exact.
fn activation(domain: &Domain, mask: &Mask, fill: Fill, source: &mut impl Source) -> Activation {
    if fill == Fill::Exact && domain.swarm && source.chance(1, 2) {
        return source.pick(&[Activation::Relu2, Activation::Relu, Activation::Identity]);
    }
    mask.pick(Feature::Activation, domain.activations, source)
}

/// Half of the exact fills get dyadic weights instead of a router.
fn router(domain: &Domain, mask: &Mask, fill: Fill, source: &mut impl Source) -> Route {
    if fill == Fill::Exact && domain.swarm && source.chance(1, 2) {
        return Route::Given;
    }
    mask.pick(Feature::Route, domain.routes, source)
}

/// Ranks and expert-parallel groups; ep divides tp.
fn ranks(domain: &Domain, mask: &Mask, qh: ActQuant, source: &mut impl Source) -> (u64, u64) {
    let tp = source.pick(domain.ranks);
    // An amax over a rank's part of a token is another number than over the whole token, whatever
    // the padding; most such cases therefore do not cut the intermediate axis.
    if matches!(qh, ActQuant::Token | ActQuant::Group) && source.chance(3, 4) {
        return if domain.expert_parallel {
            (tp, tp)
        } else {
            (1, 1)
        };
    }
    if !domain.expert_parallel || !mask.on(Feature::ExpertParallel) {
        return (tp, 1);
    }
    let divisors: Vec<u64> = (1..=tp).filter(|d| tp.is_multiple_of(*d)).collect();
    (tp, source.pick(&divisors))
}

/// Experts, k, groups and kept groups; ep divides e, and k fits the kept groups.
fn experts(
    domain: &Domain,
    mask: &Mask,
    route: Route,
    ep: u64,
    source: &mut impl Source,
) -> (u64, u64, u64, u64) {
    let edges = if mask.on(Feature::Edges) {
        domain.edges
    } else {
        0
    };
    let mut e = size(&domain.experts, &[ep], edges, source).next_multiple_of(ep);
    let (mut groups, mut keep) = (1, 1);
    if route.grouped() {
        // A group ranked by its two best experts has two.
        let least = if route == Route::GroupedSigmoidBias {
            2
        } else {
            1
        };
        e = e.max(least);
        let fitting: Vec<u64> = (1..=e)
            .filter(|g| e.is_multiple_of(*g) && e / g >= least)
            .collect();
        groups = source.pick(&fitting);
        keep = source.within(1, groups);
    }
    if let Some(least) = route.chooses() {
        e = e.max(least).next_multiple_of(ep);
    }
    let left = keep * (e / groups);
    let k = if let Some(fixed) = route.chooses() {
        fixed
    } else if domain.edges > 0 && mask.on(Feature::AllExperts) && source.chance(1, 4) {
        left
    } else {
        source.within(1, domain.top_k_max).min(left)
    };
    (e, k, groups, keep)
}

fn padding(
    domain: &Domain,
    mask: &Mask,
    w: WeightFormat,
    act: Activation,
    source: &mut impl Source,
) -> PadSpec {
    let order = if act.gated() {
        mask.pick(Feature::Order, domain.orders, source)
    } else {
        Order::GateUp
    };
    let granule = source.pick(domain.granules);
    let hidden = if mask.mostly_on(Feature::HiddenPad) {
        source.pick(domain.hidden_granules)
    } else {
        1
    };
    let tokens = mask.pick(Feature::TokenPad, domain.token_granules, source);
    let split = mask.pick(Feature::Split, domain.splits, source);
    let scales = if row_group(w) > 1 {
        let dtype = w.scale().map_or(Dtype::F32, |grid| grid.dtype);
        mask.pick(Feature::Storage, &fitting(domain.stores, dtype), source)
    } else {
        Storage::Linear
    };
    let nib = if packed(w) {
        mask.pick(Feature::Nibble, domain.nibbles, source)
    } else {
        Nibble::Low
    };
    let weights = if domain.weight_stores.len() > 1 {
        let fitting = fitting(domain.weight_stores, w.element());
        mask.pick(Feature::WeightStorage, &fitting, source)
    } else {
        domain.weight_stores[0]
    };
    let store = Stores { scales, weights };
    let needed = lcm(group(w), storage_granule(w, store));
    PadSpec {
        hidden: match hidden {
            1 => 1,
            granule => lcm(granule, group(w)),
        },
        // The granule alone is not enough: facts/peers.md 3.1 ("the rule is lcm(granule, group)");
        // and interleaved rows are padded in whole turns (facts/upstream-padding.md V-2).
        intermediate: lcm(lcm(granule, needed), order.interleave().max(1)),
        tokens,
        split,
        order,
        // `tail` is a fault that properties must catch, never a case that should pass.
        place: Place::PerHalf,
        store,
        nib,
    }
}

/// The layouts in which elements of a type can be stored.
fn fitting(stores: &[Storage], dtype: Dtype) -> Vec<Storage> {
    let stores = stores.iter().copied();
    stores.filter(|s| s.takes(dtype)).collect()
}

/// An intermediate size that the split rule can cut over `n` ranks; may replace the rule by
/// `ceil-block` where no such size is in range.
fn intermediate(
    domain: &Domain,
    mask: &Mask,
    w: WeightFormat,
    n: u64,
    pad: &mut PadSpec,
    source: &mut impl Source,
) -> u64 {
    let axis = &domain.intermediate;
    let g = group(w);
    // What a size must be a multiple of, so that every rank starts on a whole group.
    let mut step = match pad.split {
        Split::CeilBlock | Split::Stride | Split::Prepad => 1,
        Split::Floor | Split::RankChunk | Split::Config => n * if n == 1 { 1 } else { g },
        Split::Ceil if g == 1 || n == 1 => 1,
        Split::Ceil => n * g,
        Split::Error => n * pad.intermediate,
    };
    if step > axis.max {
        pad.split = Split::CeilBlock;
        step = 1;
    }
    let edges = if mask.on(Feature::Edges) {
        domain.edges
    } else {
        0
    };
    let granule = pad.intermediate;
    let steps = [
        granule,
        g,
        n,
        n * g,
        n * granule,
        GROUPS[0],
        GROUPS[1],
        GROUPS[2],
    ];
    let free = size(axis, &steps, edges, source);
    // A few sizes stay as they are, so that refusals are met too.
    if step == 1 || (domain.edges > 0 && source.chance(1, 32)) {
        return free;
    }
    let rounded = free.next_multiple_of(step);
    if rounded > axis.max {
        rounded - step
    } else {
        rounded
    }
    .max(step)
}

/// A size of the axis: anywhere, or `edges` times of 16 on or beside a multiple of a step.
fn size(axis: &Axis, steps: &[u64], edges: u64, source: &mut impl Source) -> u64 {
    if !source.chance(edges, 16) {
        return source.within(axis.min, axis.max);
    }
    let choice = source.below((steps.len() + axis.points.len()) as u64) as usize;
    let near = match steps.get(choice) {
        None => axis.points[choice - steps.len()],
        Some(step) => step * source.within(1, (axis.max / step).max(1)),
    };
    let beside = (near + source.below(3)).saturating_sub(1);
    beside.clamp(axis.min, axis.max)
}

/// Elements of K that share a scale, 1 if the whole axis does or none is scaled.
pub(super) fn group(w: WeightFormat) -> u64 {
    match w.scale().map(|grid| grid.cols) {
        Some(Extent::Block(block)) => block,
        _ => 1,
    }
}

/// The same for formats whose groups lie in one row; these cut K only between groups.
pub(super) fn row_group(w: WeightFormat) -> u64 {
    match w.scale() {
        Some(grid) if grid.rows == Extent::Block(1) => group(w),
        _ => 1,
    }
}

fn packed(w: WeightFormat) -> bool {
    matches!(
        w,
        WeightFormat::Nvfp4
            | WeightFormat::Mxfp4
            | WeightFormat::Int4
            | WeightFormat::Int4G64
            | WeightFormat::Int4G32
            | WeightFormat::Int4Channel
    )
}

pub(super) fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

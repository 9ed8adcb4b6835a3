//! The layer itself: route, first projection, activation, second projection, weighted sum.
//!
//! It must not see padding, shards or packing. Layer 5.

use super::activation::{gate_and_change, up};
use super::bound::{self, Costs, Row, SLACK, U};
use super::error::ReferenceError;
use super::product::{Multiply, Product, whole};
use super::quantise;
use super::route::{Routing, route};
use super::stages::{Stage, Stages};
use super::weights::{Parts, Projection, Sizes, shaped};
use crate::case::Case;
use crate::fill;
use crate::tensor::Logical;
use crate::terms::{ActQuant, Activation, Arithmetic, Bias, Rounded, Roundings};
use ndarray::ArrayView2;
use pulp::Arch;

/// What the layer computes, and how far a subject may be from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Output [t, h].
    pub values: Vec<f64>,
    /// Bound on |subject - value| for every f32 subject, [t, h]; derivation in the source of
    /// `reference::bound`, as text in [`Reference::DERIVATION`].
    pub bound: Vec<f64>,
    /// Expert ids [t, k], in the order of choice.
    pub ids: Vec<u32>,
    /// Routing weights [t, k], scaling factor included.
    pub weights: Vec<f64>,
    /// Bound on |subject's weight - weight|, [t, k].
    pub weight_bound: Vec<f64>,
    /// Whether every operation is exact, in any order, so that a subject's bits must equal.
    pub exact: bool,
    /// Per token: the smallest distance of a chosen score from one not chosen, in units of what
    /// f32 may make of both. At most 1: an f32 router may rightly choose other experts. Ties of
    /// equal inputs do not count; both sides give them to the lower id.
    pub route_gap: Vec<f64>,
    /// Per token: whether an f32 router may rightly choose other experts, or weigh them over other survivors
    /// (`route_gap` at most 1).
    pub ambiguous: Vec<bool>,
}

impl Reference {
    /// The bound's derivation, as `-vv` prints it.
    pub const DERIVATION: &'static str = "u = 2^-24, g(n) = n u / (1 - n u), sums over columns of magnitudes, c(n) additions of a term, n + n/4 + 2 unless the order is promised; \
        first projection e = sum |w| (g(c(h)+8) (|x| + |dx|) + |dx|) + g(c(h)+8) |b|; \
        activation eh = dA (|B| + dB) + |A| dB + evaluation, dA = L e, of silu |slope| e + e^2 / 4; rounded to bf16 where declared, + what a code of E4M3 may move where quantised (2^-4 where a rank's share sets the scale); \
        second projection, experts and ranks (an identity expert is one of the weight 1, without c(i)): sum over experts of (|v| + dv) (sum |w| (eh + g (|h| + eh)) + g |b|) + dv |z| with g = g(c(i)+k+tp+8), and of that n 2^-8 / (1 - n 2^-8) more where it is rounded to bf16 n times; \
        4 instead of 8 for f32 weights in a promised order; \
        of f32 weights in known lanes, and known evaluation, from partial sums s: e_s = e_a + e_b + u p(|s| + e_a + e_b), p the largest power of two, \
        is all of a first projection but u |z + b|, and with ranks that hold whole rows of a second one but (dv + g(k+1) (|v| + dv)) |z + b|";
}

/// Computes the layer of a case from its logical tensors.
///
/// # Errors
/// A case that is not valid, tensors that are not its own.
pub fn reference(case: &Case, logical: &Logical) -> Result<Reference, ReferenceError> {
    reference_for(case, logical, Arithmetic::default())
}

/// The same for a subject of which it is known where it rounds to bf16 and how it adds.
///
/// # Errors
/// As [`reference()`].
pub fn reference_for(
    case: &Case,
    logical: &Logical,
    arithmetic: Arithmetic,
) -> Result<Reference, ReferenceError> {
    compute(case, logical, arithmetic, None)
}

/// Computes the layer once more, for what it computes on its way.
///
/// # Errors
/// As [`reference()`].
pub fn stages(
    case: &Case,
    logical: &Logical,
    arithmetic: Arithmetic,
) -> Result<Stages, ReferenceError> {
    case.validate()?;
    let (rows, h, i) = ((case.t * case.k) as usize, case.h as usize, case.i as usize);
    let mut stages = Stages {
        first: Stage::new(rows, case.act.halves() as usize * i),
        middle: Stage::new(rows, i),
        second: Stage::new(rows, h),
    };
    compute(case, logical, arithmetic, Some(&mut stages))?;
    Ok(stages)
}

fn compute(
    case: &Case,
    logical: &Logical,
    arithmetic: Arithmetic,
    stages: Option<&mut Stages>,
) -> Result<Reference, ReferenceError> {
    case.validate()?;
    let layer = Layer::new(case, logical, arithmetic)?;
    let rounds = arithmetic.rounds;
    let routing = route(case, &logical.router)?;
    let (t, h) = (case.t as usize, case.h as usize);
    let mut sums = Sums {
        values: vec![0.0; t * h],
        bound: vec![0.0; t * h],
        exact: fill::is_exact(case) && bound::roundings_after(rounds, Some(case.k)) == 0,
        stages,
    };
    let mut scratch = Scratch::default();
    let expert = |place: &usize| routing.ids[*place];
    let mut places: Vec<usize> = (0..routing.ids.len()).collect();
    places.sort_by_key(expert);
    for places in places.chunk_by(|a, b| expert(a) == expert(b)) {
        let id = expert(&places[0]) as usize;
        match id < case.e as usize {
            true => layer.expert(id, places, &routing, &mut scratch, &mut sums),
            false => layer.identity(places, &routing, &mut sums),
        }
    }
    // Step 7 of the derivation: the bound's own arithmetic.
    sums.bound
        .iter_mut()
        .for_each(|b| *b = bound::anything(*b * SLACK));
    Ok(Reference {
        values: sums.values,
        bound: sums.bound,
        ids: routing.ids,
        weights: routing.weights,
        weight_bound: routing.errors,
        exact: sums.exact,
        ambiguous: routing.gaps.iter().map(|&gap| gap <= 1.0).collect(),
        route_gap: routing.gaps,
    })
}

/// What experts add to.
struct Sums<'a> {
    values: Vec<f64>,
    bound: Vec<f64>,
    exact: bool,
    /// What is computed on the way, where it is wanted.
    stages: Option<&'a mut Stages>,
}

/// Buffers that experts reuse.
#[derive(Default)]
struct Scratch {
    /// Inputs of the expert's tokens, [n, h], rows filled up to whole lanes.
    x: Vec<f64>,
    /// Their errors, one token at a time.
    dx: Vec<f64>,
    /// What each adds to the bound of the first projection, like `x`.
    reach: Vec<f64>,
    first: Product,
    /// Intermediate, [n, i], rows filled up to whole lanes.
    mid: Vec<f64>,
    /// Its errors, one token at a time.
    dmid: Vec<f64>,
    /// What each adds to the bound of the second projection, like `mid`; the same before the routing weight.
    reach_mid: Vec<f64>,
    reach_alone: Vec<f64>,
    second: Product,
}

struct Layer<'a> {
    arch: Arch,
    case: &'a Case,
    logical: &'a Logical,
    rounds: Roundings,
    costs: Costs,
    x: &'a [f32],
    w13: Projection<'a>,
    w2: Projection<'a>,
}

impl<'a> Layer<'a> {
    fn new(
        case: &'a Case,
        logical: &'a Logical,
        arithmetic: Arithmetic,
    ) -> Result<Self, ReferenceError> {
        let (t, e, h, i) = (
            case.t as usize,
            case.e as usize,
            case.h as usize,
            case.i as usize,
        );
        let halves = case.act.halves() as usize;
        let biased = case.bias == Bias::Both;
        let first = Parts {
            codes: &logical.w13,
            scale: logical.w13_scale.as_ref(),
            global: logical.w13_global.as_ref(),
            bias: logical.w13_bias.as_ref(),
        };
        let second = Parts {
            codes: &logical.w2,
            scale: logical.w2_scale.as_ref(),
            global: logical.w2_global.as_ref(),
            bias: logical.w2_bias.as_ref(),
        };
        let sizes13 = Sizes {
            experts: e,
            halves,
            rows: i,
            cols: h,
        };
        let sizes2 = Sizes {
            experts: e,
            halves: 1,
            rows: h,
            cols: i,
        };
        let names13 = ["w13", "w13_scale", "w13_scale_2", "w13_bias"];
        let names2 = ["w2", "w2_scale", "w2_scale_2", "w2_bias"];
        Ok(Layer {
            arch: Arch::new(),
            case,
            logical,
            rounds: arithmetic.rounds,
            costs: Costs::new(case, arithmetic),
            x: shaped(Some(&logical.x), "x", &[t, h], 32)?.f32s(),
            w13: Projection::new(case.w, sizes13, first, biased, names13)?,
            w2: Projection::new(case.w, sizes2, second, biased, names2)?,
        })
    }

    /// Adds one expert's share to the sums; `places` are its places in the routing's [t, k].
    fn expert(
        &self,
        expert: usize,
        places: &[usize],
        routing: &Routing,
        scratch: &mut Scratch,
        sums: &mut Sums<'_>,
    ) {
        let (h, i) = (self.case.h as usize, self.case.i as usize);
        let firsts = self.inputs(places, routing, scratch, sums);
        let Scratch {
            x, reach, first, ..
        } = &mut *scratch;
        self.multiply(&self.w13, expert, [x, reach], (h, &firsts), first);
        let (seconds, alone) = self.middles(places, routing, &firsts, scratch, sums);
        let Scratch {
            mid,
            reach_mid,
            reach_alone,
            second,
            ..
        } = scratch;
        if let Some(stages) = &mut sums.stages {
            self.multiply(&self.w2, expert, [mid, reach_alone], (i, &alone), second);
            stages.keep_second(places, &alone, second);
        }
        self.multiply(&self.w2, expert, [mid, reach_mid], (i, &seconds), second);
        let results = second
            .values
            .chunks_exact(h)
            .zip(second.reach.chunks_exact(h));
        for ((z, reach), (place, row)) in results.zip(places.iter().zip(seconds)) {
            let weight = self.weight(routing, *place).0;
            let token = place / self.case.k as usize;
            let values = &mut sums.values[token * h..][..h];
            let bounds = &mut sums.bound[token * h..][..h];
            let results = z.iter().zip(reach).zip(&second.bias);
            for ((value, limit), ((z, reach), bias)) in values.iter_mut().zip(bounds).zip(results) {
                *value += weight * (z + bias);
                *limit += row.limit(*reach, *bias, *z);
            }
        }
    }

    /// Adds an identity expert's share to the sums: the weight times the input, as it came.
    fn identity(&self, places: &[usize], routing: &Routing, sums: &mut Sums<'_>) {
        let (h, k) = (self.case.h as usize, self.case.k as usize);
        for &place in places {
            let token = place / k;
            let (weight, error) = (routing.weights[place], routing.errors[place]);
            let row = token * h..(token + 1) * h;
            let outputs = sums.values[row.clone()]
                .iter_mut()
                .zip(&mut sums.bound[row.clone()]);
            for ((value, limit), &x) in outputs.zip(&self.x[row]) {
                let x = f64::from(x);
                *value += weight * x;
                *limit += self.costs.identity(x, (weight, error));
            }
        }
    }

    /// What multiplies an expert's output at a place, and its error: 1 where the router weighs the input.
    fn weight(&self, routing: &Routing, place: usize) -> (f64, f64) {
        match self.case.route.weights_input() {
            true => (1.0, 0.0),
            false => (routing.weights[place], routing.errors[place]),
        }
    }

    /// The inputs of an expert's tokens, and the bounds of step 2.
    fn inputs(
        &self,
        places: &[usize],
        routing: &Routing,
        scratch: &mut Scratch,
        sums: &mut Sums<'_>,
    ) -> Vec<Row> {
        let (h, k) = (self.case.h as usize, self.case.k as usize);
        scratch.x.clear();
        scratch.reach.clear();
        let mut rows = Vec::with_capacity(places.len());
        for (n, &place) in places.iter().enumerate() {
            let (weight, error) = (routing.weights[place], routing.errors[place]);
            let (weight, relative) = match self.case.route.weights_input() {
                true => (
                    weight,
                    error / weight.abs().max(f64::MIN_POSITIVE) + 2.0 * U,
                ),
                false => (1.0, 0.0),
            };
            let row = &self.x[place / k * h..][..h];
            scratch.x.extend(row.iter().map(|&x| f64::from(x) * weight));
            scratch.x.resize((n + 1) * whole(h), 0.0);
            rows.push(self.input(n, relative, scratch, sums));
        }
        rows
    }

    /// The intermediates of an expert's tokens, and the bounds of step 4: of the weighted results, and where stages
    /// are wanted, of the second projection before its weight.
    fn middles(
        &self,
        places: &[usize],
        routing: &Routing,
        firsts: &[Row],
        scratch: &mut Scratch,
        sums: &mut Sums<'_>,
    ) -> (Vec<Row>, Vec<Row>) {
        let i = self.case.i as usize;
        for rows in [
            &mut scratch.mid,
            &mut scratch.reach_mid,
            &mut scratch.reach_alone,
        ] {
            rows.clear();
        }
        let (mut seconds, mut alone) = (Vec::with_capacity(places.len()), Vec::new());
        for (n, (&place, first)) in places.iter().zip(firsts).enumerate() {
            self.intermediate(n, first, scratch, sums);
            let (mid, errors) = (&scratch.mid[n * whole(i)..][..i], &scratch.dmid);
            let weight = Some(self.weight(routing, place));
            let reach = &mut scratch.reach_mid;
            seconds.push(self.costs.second(mid, errors, weight, reach));
            scratch.reach_mid.resize(scratch.mid.len(), 0.0);
            if let Some(stages) = &mut sums.stages {
                let reach = &mut scratch.reach_alone;
                alone.push(self.costs.second(mid, errors, None, reach));
                scratch.reach_alone.resize(scratch.mid.len(), 0.0);
                self.first_stages(stages, place, n, first, scratch);
            }
        }
        (seconds, alone)
    }

    /// out = values [n, cols], and what they add to the bound of these rows, times one expert's rows.
    fn multiply(
        &self,
        projection: &Projection<'_>,
        expert: usize,
        factors: [&[f64]; 2],
        (cols, bounds): (usize, &[Row]),
        out: &mut Product,
    ) {
        let followed: Vec<f64> = bounds.iter().filter_map(|row| row.followed).collect();
        let shape = (factors[0].len() / whole(cols), whole(cols));
        let [values, reach] =
            factors.map(|rows| ArrayView2::from_shape(shape, rows).expect("whole rows"));
        self.arch.dispatch(Multiply {
            projection,
            expert,
            values,
            reach,
            followed: &followed,
            out,
        });
    }

    /// Step 1 for the expert's token number `n`, whose input is quantised in place; the bound of
    /// step 2.
    fn input(&self, n: usize, relative: f64, scratch: &mut Scratch, sums: &mut Sums<'_>) -> Row {
        let h = self.case.h as usize;
        let x = &mut scratch.x[n * whole(h)..][..h];
        let (mode, scale) = (self.case.qx, self.logical.x_scale);
        scratch.dx.clear();
        scratch.dx.extend(x.iter().map(|x| relative * x.abs()));
        if self.rounds.has(Rounded::X) {
            sums.exact = sums.exact && quantise::keeps_bf16(x);
            quantise::round_all_bf16(x, &mut scratch.dx);
        }
        sums.exact &= quantise::keeps(mode, scale, x);
        quantise::follow(mode, scale, x, &mut scratch.dx);
        let row = self.costs.first(x, &scratch.dx, &mut scratch.reach);
        scratch.reach.resize((n + 1) * whole(h), 0.0);
        row
    }

    /// Step 3: appends the token's intermediate, and gives its errors.
    fn intermediate(&self, n: usize, first: &Row, scratch: &mut Scratch, sums: &mut Sums<'_>) {
        let Case { act, .. } = *self.case;
        let i = self.case.i as usize;
        let rows = scratch.first.rows();
        scratch.dmid.clear();
        if self.rounds.has(Rounded::Fc1) {
            let mut y = (0..rows).map(|r| scratch.first.element(n, r));
            sums.exact = sums.exact && y.all(|y| quantise::keeps_bf16(&[y]));
        }
        let row = |r: usize| self.first_row(n, r, first, &scratch.first);
        let round_gate = act == Activation::SwigluRounded || self.rounds.has(Rounded::Gate);
        for j in 0..i {
            let (g, eg) = row(j);
            let (a, da) = gate_and_change(act, g, eg);
            let da = self.costs.evaluated(act, (g, eg), a, da);
            let (a, da) = match round_gate {
                true => {
                    sums.exact = sums.exact && quantise::keeps_bf16(&[a]);
                    quantise::round_bf16(a, da)
                }
                false => (a, da),
            };
            let (b, db) = if act.gated() {
                let (u, eu) = row(i + j);
                let b = up(act, u);
                (b, self.costs.up_change(act, b, eu))
            } else {
                (1.0, 0.0)
            };
            scratch.mid.push(a * b);
            scratch.dmid.push(self.costs.product(a, da, b, db));
        }
        let start = scratch.mid.len() - i;
        scratch.mid.resize(start + whole(i), 0.0);
        let mid = &mut scratch.mid[start..][..i];
        if self.case.mid_bf16 || self.rounds.has(Rounded::Act) {
            sums.exact = sums.exact && quantise::keeps_bf16(mid);
            quantise::round_all_bf16(mid, &mut scratch.dmid);
        }
        let (mode, scale) = (self.case.qh, self.logical.h_scale);
        sums.exact = sums.exact && quantise::keeps(mode, scale, mid);
        // A rank takes the amax of its own share, and counts groups from its own start.
        let shared = self.case.tp > self.case.ep;
        if shared && matches!(mode, ActQuant::Token | ActQuant::Group) {
            quantise::widen(mode, scale, mid, &mut scratch.dmid);
        } else {
            quantise::follow(mode, scale, mid, &mut scratch.dmid);
        }
    }

    /// An element of the first projection with its bias, and its bound.
    #[inline]
    fn first_row(&self, n: usize, r: usize, first: &Row, product: &Product) -> (f64, f64) {
        let value = product.element(n, r);
        let reach = product.reach[n * product.rows() + r];
        let (bias, z) = (product.bias[r], product.values[n * product.rows() + r]);
        let error = bound::anything(first.limit(reach, bias, z));
        match self.rounds.has(Rounded::Fc1) {
            true => quantise::round_bf16(value, error),
            false => (value, error),
        }
    }

    /// Keeps the first projection and the intermediate of the expert's token number `n`.
    fn first_stages(
        &self,
        stages: &mut Stages,
        place: usize,
        n: usize,
        first: &Row,
        scratch: &Scratch,
    ) {
        for r in 0..stages.first.cols {
            let (value, bound) = self.first_row(n, r, first, &scratch.first);
            stages.first.set(place, r, value, bound);
        }
        let i = self.case.i as usize;
        let start = scratch.mid.len() - whole(i);
        let mid = &scratch.mid[start..][..i];
        // A subject may show it before or after it is quantised.
        let mut bounds = scratch.dmid.clone();
        quantise::widen(self.case.qh, self.logical.h_scale, mid, &mut bounds);
        for (j, (value, bound)) in mid.iter().zip(&bounds).enumerate() {
            stages.middle.set(place, j, *value, *bound);
        }
    }
}

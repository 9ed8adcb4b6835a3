//! A subject as a box that adds: layers whose outputs are the sums of chosen products.
//!
//! On the intermediate axis a row of w2 holds the products and the intermediate is one constant; on
//! the hidden axis a row of w13 does, and w2 hands each row's sum to an output of its own. Outputs
//! are read in units that the subject itself gives for a single product, so that no activation's
//! formula is needed.

use crate::case::{Case, PadSpec, Scheme};
use crate::layout::{LayoutError, pack_layer};
use crate::plan::{PlanError, plan};
use crate::schedule::{Ask, Probe};
use crate::subject::{SkipReason, Subject, SubjectError};
use crate::tensor::{Logical, RouterInput, Tensor};
use crate::terms::{Activation, Order, Route, WeightFormat};
use std::fmt;

/// Which sums are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Those of the second projection, over the intermediate.
    Intermediate,
    /// Those of the first projection, over the hidden size.
    Hidden,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Axis::Intermediate => "intermediate",
            Axis::Hidden => "hidden",
        })
    }
}

/// The layers that are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Whose sums.
    pub axis: Axis,
    /// Products of a sum.
    pub n: u64,
    /// The size that padding brings that axis to; `n` for none.
    pub padded: u64,
    /// Tokens, all alike: kernels choose their path by their number too.
    pub tokens: u64,
    /// Sums of one layer: hidden size where the intermediate axis is looked at, and the other way round.
    pub rows: u64,
    /// Weight format: f32 or bf16.
    pub weights: WeightFormat,
}

/// Why a subject cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoxError {
    /// No plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No tensors.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The subject takes none of the layers that could be used.
    #[error("the subject takes none of the layers that sums show in: {0}")]
    Skipped(SkipReason),
    /// The subject failed.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// A weight format that does not hold what is asked with.
    #[error("weights {0} do not hold 2^100, with which sums are swamped: f32 and bf16 do")]
    Format(WeightFormat),
    /// Sums that depend on the token's place.
    #[error(
        "token {token} of {tokens} alike gave {actual} where token 0 gave {wanted}: an order for each token"
    )]
    Tokens {
        /// The token.
        token: usize,
        /// Tokens.
        tokens: u64,
        /// Token 0's sum.
        wanted: f32,
        /// Its own.
        actual: f32,
    },
    /// A subject whose single product is nothing.
    #[error("a single product of 1 came out as {0}")]
    Unit(f32),
}

/// What a row adds up.
enum Row<'p> {
    Probe(&'p Probe),
    /// So many ones.
    Ones(usize),
}

impl Row<'_> {
    fn value(&self, k: usize) -> f32 {
        match self {
            Row::Probe(probe) => probe.value(k),
            Row::Ones(count) if k < *count => 1.0,
            Row::Ones(_) => 0.0,
        }
    }
}

/// A subject that is asked for sums.
pub struct BlackBox<'s> {
    subject: &'s mut dyn Subject,
    setup: Setup,
    case: Case,
    /// The sum of a single product.
    unit: f64,
    exact: usize,
    /// Layers run.
    pub runs: usize,
}

/// What a gate row comes to: every sigmoid of it is 1 in f32 and bf16.
const GATE: f32 = 64.0;
/// Numbers up to which outputs may count: all, and what f16 and bf16 hold of units that are powers
/// of two and of others.
const LIMITS: [usize; 5] = [1 << 24, 2048, 256, 32, 8];
/// Numbers tried below each limit.
const TRIED: usize = 8;
/// How far a sum may be from its count: half of what a count that is read may.
const OFF: f64 = 0.125;

impl<'s> BlackBox<'s> {
    /// Finds a layer that the subject takes, and reads its units.
    ///
    /// # Errors
    /// [`BoxError`].
    pub fn new(subject: &'s mut dyn Subject, setup: Setup) -> Result<Self, BoxError> {
        if !matches!(setup.weights, WeightFormat::F32 | WeightFormat::Bf16) {
            return Err(BoxError::Format(setup.weights));
        }
        let case = chosen(subject, &setup)?;
        let mut own = BlackBox {
            subject,
            setup,
            case,
            unit: 1.0,
            exact: 1,
            runs: 0,
        };
        let n = usize::try_from(setup.n).unwrap_or(usize::MAX);
        let limits = LIMITS.map(|limit| limit.min(n));
        let counts = |limit: usize| limit.saturating_sub(TRIED)..limit;
        let mut rows = vec![Row::Ones(1)];
        rows.extend(
            limits
                .into_iter()
                .flat_map(counts)
                .map(|c| Row::Ones(c + 1)),
        );
        let sums = own.sums(&rows)?;
        let unit = f64::from(sums[0]);
        if !(unit.is_finite() && unit > 0.0) {
            return Err(BoxError::Unit(sums[0]));
        }
        own.unit = unit;
        let mut sums = sums[1..].iter();
        own.exact = 1;
        for limit in limits {
            let counted = |count: usize| {
                let sum = sums.next().map_or(f64::NAN, |&sum| f64::from(sum));
                (sum / unit - (count + 1) as f64).abs() < OFF
            };
            let exact: Vec<bool> = counts(limit).map(counted).collect();
            if exact.iter().all(|&exact| exact) {
                own.exact = own.exact.max(limit);
            }
        }
        Ok(own)
    }

    /// The layer that is run.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// The rows' sums, a layer after the other.
    fn sums(&mut self, rows: &[Row<'_>]) -> Result<Vec<f32>, BoxError> {
        let many = match self.setup.axis {
            Axis::Intermediate => self.case.h,
            Axis::Hidden => self.case.i,
        };
        let many = usize::try_from(many).unwrap_or(usize::MAX).max(1);
        let mut sums = Vec::with_capacity(rows.len());
        for rows in rows.chunks(many) {
            sums.extend(self.layer(rows)?);
        }
        Ok(sums)
    }

    /// The sums of the rows of one layer.
    fn layer(&mut self, rows: &[Row<'_>]) -> Result<Vec<f32>, BoxError> {
        let plan = plan(&self.case)?;
        let packed = pack_layer(&plan, &self.logical(rows))?;
        self.subject.about(&self.case);
        let output = self.subject.run(&plan, &packed)?;
        self.runs += 1;
        let first = &output.values[..rows.len()];
        for (token, values) in output.values.chunks(output.hidden.max(1)).enumerate() {
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a == b;
            if let Some(at) = first.iter().zip(values).position(|pair| !same(pair)) {
                return Err(BoxError::Tokens {
                    token,
                    tokens: self.setup.tokens,
                    wanted: first[at],
                    actual: values[at],
                });
            }
        }
        Ok(first.to_vec())
    }

    /// The layer's tensors: sums of rows as [`self`] says.
    fn logical(&self, rows: &[Row<'_>]) -> Logical {
        let size = |n: u64| usize::try_from(n).expect("plans bound sizes");
        let Case { t, h, i, act, .. } = self.case;
        let (t, h, i, halves) = (size(t), size(h), size(i), size(act.halves()));
        let mut w13 = vec![0.0; halves * i * h];
        let mut w2 = vec![0.0; h * i];
        let mut x = vec![0.0; t * h];
        match self.setup.axis {
            Axis::Intermediate => {
                x.chunks_mut(h).for_each(|x| x[0] = 1.0);
                for (r, row) in w13.chunks_mut(h).enumerate() {
                    row[0] = if r < i { GATE } else { 1.0 / GATE };
                }
                for (row, w2) in rows.iter().zip(w2.chunks_mut(i)) {
                    w2.iter_mut()
                        .enumerate()
                        .for_each(|(k, w)| *w = row.value(k));
                }
            }
            Axis::Hidden => {
                x.fill(1.0);
                // Where there is no gate the sum itself goes through the activation.
                let scale = if halves == 2 { 1.0 } else { GATE };
                let first = (halves - 1) * i;
                for (r, row) in w13.chunks_mut(h).enumerate() {
                    if r < first {
                        row[0] = GATE;
                    } else if let Some(of) = rows.get(r - first) {
                        row.iter_mut()
                            .enumerate()
                            .for_each(|(k, w)| *w = scale * of.value(k));
                    }
                }
                (0..i.min(h)).for_each(|j| w2[j * i + j] = 1.0);
            }
        }
        let weights = |name, shape: [usize; 3], values: &[f32]| {
            if self.setup.weights == WeightFormat::F32 {
                return Tensor::from_f32(name, &shape, values);
            }
            let mut tensor = Tensor::zeroed(name, &shape, 16);
            let halves = tensor.bytes_mut().chunks_exact_mut(2);
            for (to, value) in halves.zip(values) {
                to.copy_from_slice(&half::bf16::from_f32(*value).to_le_bytes());
            }
            tensor
        };
        Logical {
            x: Tensor::from_f32("x", &[t, h], &x),
            router: RouterInput::Given {
                ids: vec![0; t],
                weights: vec![1.0; t],
            },
            w13: weights("w13", [1, halves * i, h], &w13),
            w2: weights("w2", [1, h, i], &w2),
            w13_scale: None,
            w2_scale: None,
            w13_global: None,
            w2_global: None,
            w13_bias: None,
            w2_bias: None,
            x_scale: 1.0,
            h_scale: 1.0,
        }
    }
}

impl Ask for BlackBox<'_> {
    type Error = BoxError;

    fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, BoxError> {
        let rows: Vec<Row<'_>> = probes.iter().map(Row::Probe).collect();
        let sums = self.sums(&rows)?;
        Ok(sums
            .into_iter()
            .map(|sum| f64::from(sum) / self.unit)
            .collect())
    }

    fn exact(&self) -> usize {
        self.exact
    }
}

/// The first layer that the subject takes: activations through which sums show, orders of w13's
/// rows.
fn chosen(subject: &mut dyn Subject, setup: &Setup) -> Result<Case, BoxError> {
    const ORDERS: [Order; 6] = [
        Order::GateUp,
        Order::UpGate,
        Order::Int1,
        Order::Int8,
        Order::Int16,
        Order::Int64,
    ];
    // On the hidden axis those that leave a sum, or a large one, as it is.
    let activations: &[Activation] = match setup.axis {
        Axis::Intermediate => Activation::ALL,
        Axis::Hidden => &[
            Activation::Identity,
            Activation::Relu,
            Activation::Silu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Swiglu,
            Activation::Geglu,
            Activation::GegluTanh,
        ],
    };
    let mut why = SkipReason::NoSubject;
    for &act in activations {
        for order in ORDERS.into_iter().take(if act.gated() { 6 } else { 1 }) {
            let case = case(setup, act, order);
            subject.about(&case);
            match subject.supports(&plan(&case)?) {
                Ok(()) => return Ok(case),
                Err(reason) => why = reason,
            }
        }
    }
    Err(BoxError::Skipped(why))
}

fn case(setup: &Setup, act: Activation, order: Order) -> Case {
    // A granule of the padded size itself: one multiple of it is the next from any n below.
    let granule = if setup.padded > setup.n {
        setup.padded
    } else {
        1
    };
    let (h, i, pads) = match setup.axis {
        Axis::Intermediate => (setup.rows, setup.n, (1, granule)),
        // A row's sum leaves by an output of its own: no more rows than the hidden size.
        Axis::Hidden => (setup.n, setup.rows.min(setup.n), (granule, 1)),
    };
    Case {
        t: setup.tokens,
        e: 1,
        k: 1,
        h,
        i,
        act,
        route: Route::Given,
        w: setup.weights,
        scheme: Scheme::Spelled(PadSpec {
            hidden: pads.0,
            intermediate: pads.1,
            order,
            ..PadSpec::default()
        }),
        ..Case::default()
    }
}

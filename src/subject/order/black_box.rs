//! A subject as a box that adds.
//!
//! Outputs are read in units that the subject itself gives for a single product, so that no
//! activation's formula is needed. It must not know trees. Layer 5.

use super::carrier::{Axis, Row, Setup};
use crate::case::Case;
use crate::layout::{LayoutError, PackedInputs, pack_layer};
use crate::plan::{Plan, PlanError, plan};
use crate::schedule::{Ask, Probe};
use crate::subject::api::Subject;
use crate::subject::error::SubjectError;
use crate::terms::{Order, Route};

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
    Skipped(String),
    /// The subject failed.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// Layers too large to hold.
    #[error(
        "a layer of {case} holds {bytes} bytes of values, at most {limit}: ask with less --k or fewer --rows"
    )]
    TooLarge {
        /// The layer.
        case: String,
        /// Its bytes.
        bytes: u64,
        /// The ceiling.
        limit: u64,
    },
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

/// A subject that is asked for sums.
pub struct BlackBox<'s> {
    subject: &'s mut dyn Subject,
    setup: Setup,
    case: Case,
    plan: Plan,
    /// The layer where the input alone changes.
    packed: Option<PackedInputs>,
    /// The sum of a single product.
    unit: f64,
    exact: usize,
    /// Layers run.
    pub runs: usize,
}

/// Numbers up to which outputs may count: all, and what f16 and bf16 hold of units that are powers
/// of two and of others.
const LIMITS: [usize; 5] = [1 << 24, 2048, 256, 32, 8];
/// Numbers tried below each limit.
const TRIED: usize = 8;
/// How far a sum may be from its count: half of what a count that is read may.
const OFF: f64 = 0.125;
/// Largest layer, its values as f32 (bytes); it is held about three times.
const BYTES_MAX: u64 = 1 << 30;

impl<'s> BlackBox<'s> {
    /// The size of the axis whose sums are asked for, padding included: blocks of scales and orders of rows ask for
    /// some without being told.
    pub fn size(&self) -> u64 {
        match self.setup.axis {
            Axis::Intermediate => self.plan.width_padded,
            Axis::Hidden => self.plan.hidden_padded,
        }
    }

    /// Finds a layer that the subject takes, and reads its units.
    ///
    /// # Errors
    /// [`BoxError`].
    pub fn new(subject: &'s mut dyn Subject, setup: Setup) -> Result<Self, BoxError> {
        let (case, plan) = chosen(subject, &setup)?;
        let bytes = Setup::bytes(&case);
        if bytes > BYTES_MAX {
            return Err(BoxError::TooLarge {
                case: case.to_string(),
                bytes,
                limit: BYTES_MAX,
            });
        }
        let mut own = BlackBox {
            subject,
            setup,
            case,
            plan,
            packed: None,
            unit: 1.0,
            exact: 1,
            runs: 0,
        };
        own.calibrate()?;
        Ok(own)
    }

    /// Reads what a single product comes to, and how far the outputs count.
    fn calibrate(&mut self) -> Result<(), BoxError> {
        let n = usize::try_from(self.setup.n).unwrap_or(usize::MAX);
        let limits = LIMITS.map(|limit| limit.min(n));
        let counts = |limit: usize| limit.saturating_sub(TRIED)..limit;
        let mut rows = vec![Row::Ones(1)];
        rows.extend(
            limits
                .into_iter()
                .flat_map(counts)
                .map(|c| Row::Ones(c + 1)),
        );
        let sums = self.sums(&rows)?;
        let unit = f64::from(sums[0]);
        if !(unit.is_finite() && unit > 0.0) {
            return Err(BoxError::Unit(sums[0]));
        }
        self.unit = unit;
        let mut sums = sums[1..].iter();
        for limit in limits {
            let counted = |count: usize| {
                let sum = sums.next().map_or(f64::NAN, |&sum| f64::from(sum));
                (sum / unit - (count + 1) as f64).abs() < OFF
            };
            let exact: Vec<bool> = counts(limit).map(counted).collect();
            if exact.iter().all(|&exact| exact) {
                self.exact = self.exact.max(limit);
            }
        }
        Ok(())
    }

    /// The layer that is run.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// The rows' sums, a layer after the other.
    fn sums(&mut self, rows: &[Row<'_>]) -> Result<Vec<f32>, BoxError> {
        let many = usize::try_from(self.setup.sums(&self.case)).unwrap_or(usize::MAX);
        let mut sums = Vec::with_capacity(rows.len());
        for rows in rows.chunks(many.max(1)) {
            let values = self.layer(rows)?;
            sums.extend(values);
        }
        Ok(sums)
    }

    /// The sums of the rows of one layer.
    fn layer(&mut self, rows: &[Row<'_>]) -> Result<Vec<f32>, BoxError> {
        let by_input = self.setup.by_input();
        let mut packed = match self.packed.take() {
            Some(packed) => packed,
            None => pack_layer(&self.plan, &self.setup.logical(&self.case, rows))?,
        };
        if by_input {
            // Padding of the input stays zero: columns beyond the layer's own are not written.
            let columns = usize::try_from(self.case.h).unwrap_or(usize::MAX);
            let mut x = vec![0.0; columns * usize::try_from(self.case.t).unwrap_or(0)];
            self.setup.input(columns, rows, &mut x);
            let stride = usize::try_from(self.plan.hidden_padded).unwrap_or(columns);
            let padded = packed.x.f32s_mut().chunks_mut(stride.max(1));
            for (to, from) in padded.zip(x.chunks(columns.max(1))) {
                to[..columns].copy_from_slice(from);
            }
        }
        self.subject.about(&self.case);
        let output = self.subject.run(&self.plan, &packed)?;
        self.runs += 1;
        if by_input {
            self.packed = Some(packed);
            let first = output.values.chunks(output.hidden.max(1));
            return Ok(first.take(rows.len()).map(|row| row[0]).collect());
        }
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
/// rows, routers that give the one expert weight 1.
fn chosen(subject: &mut dyn Subject, setup: &Setup) -> Result<(Case, Plan), BoxError> {
    const ORDERS: [Order; 6] = [
        Order::GateUp,
        Order::UpGate,
        Order::Int1,
        Order::Int8,
        Order::Int16,
        Order::Int64,
    ];
    const ROUTES: [Route; 3] = [Route::Given, Route::SoftmaxRenorm, Route::TopkSoftmax];
    let mut reasons: Vec<String> = Vec::new();
    for &act in setup.activations() {
        for order in ORDERS.into_iter().take(if act.gated() { 6 } else { 1 }) {
            for route in ROUTES {
                for &granule in setup.granules() {
                    let case = setup.case(act, order, route, granule);
                    let plan = plan(&case)?;
                    subject.about(&case);
                    match subject.supports(&plan) {
                        Ok(()) => return Ok((case, plan)),
                        Err(reason) => reasons.push(reason.to_string()),
                    }
                }
            }
        }
    }
    // Each once, the first ones.
    let mut shown: Vec<String> = Vec::new();
    for reason in reasons {
        if shown.len() < 4 && !shown.contains(&reason) {
            shown.push(reason);
        }
    }
    Err(BoxError::Skipped(shown.join("; ")))
}

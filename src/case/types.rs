//! The case itself.

use crate::terms::{
    ActQuant, Activation, Bias, Fill, Nibble, Numerics, Order, Place, Route, Split, Stores,
    WeightFormat,
};

/// Everything needed to run one check. Sizes are logical, in elements.
///
/// The letters are the field's: t tokens, e experts, k chosen experts, h hidden, i intermediate.
#[derive(Clone, PartialEq)]
pub struct Case {
    /// Tokens; 0 is legal.
    pub t: u64,
    /// Experts.
    pub e: u64,
    /// Experts chosen per token (top_k).
    pub k: u64,
    /// Hidden size seen by the experts.
    pub h: u64,
    /// Intermediate size of one expert, global, logical.
    pub i: u64,
    /// Tensor-parallel ranks in all.
    pub tp: u64,
    /// Expert-parallel groups; divides `tp`. Experts are cut by `ep`, the intermediate axis by `tp / ep`.
    pub ep: u64,
    /// Activation.
    pub act: Activation,
    /// Router.
    pub route: Route,
    /// Expert groups of a grouped router (1 otherwise).
    pub groups: u64,
    /// Groups kept by a grouped router (1 otherwise).
    pub keep: u64,
    /// routed_scaling_factor, in thousandths (2500 is 2.5), so that text and value are one.
    pub factor: u64,
    /// Identity ("zero") experts, which the router chooses from too: their ids follow those of the experts.
    pub zero: u64,
    /// Weight format.
    pub w: WeightFormat,
    /// Quantisation of the expert's input on the fly.
    pub qx: ActQuant,
    /// Quantisation of the intermediate on the fly.
    pub qh: ActQuant,
    /// Whether the intermediate is rounded to bf16 (`mid=bf16`) or kept in f32 (`mid=f32`).
    pub mid_bf16: bool,
    /// Biases.
    pub bias: Bias,
    /// How the layer is padded.
    pub scheme: Scheme,
    /// How values are drawn.
    pub fill: Fill,
    /// Seed of the fill.
    pub seed: u64,
}

/// How a case's layer is padded: by a named rule, or spelled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// `rule=ID`: a shipped rule decides everything.
    Rule(String),
    /// `pad=…,split=…,order=…,place=…,store=…,nib=…`.
    Spelled(PadSpec),
}

/// A padding scheme spelled out in the case line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PadSpec {
    /// Granule of the hidden axis in elements (`pad=h64`), 1 for none.
    pub hidden: u64,
    /// Granule of the per-rank intermediate axis in elements (`pad=i128`), 1 for none.
    pub intermediate: u64,
    /// Granule of the token axis (`pad=t8`), 1 for none.
    pub tokens: u64,
    /// Split rule.
    pub split: Split,
    /// Row order of w13.
    pub order: Order,
    /// Pad place.
    pub place: Place,
    /// Storage layouts of scales and weights.
    pub store: Stores,
    /// Nibble order of packed weights.
    pub nib: Nibble,
}

impl Default for PadSpec {
    fn default() -> Self {
        PadSpec {
            hidden: 1,
            intermediate: 1,
            tokens: 1,
            split: Split::CeilBlock,
            order: Order::GateUp,
            place: Place::PerHalf,
            store: Stores::LINEAR,
            nib: Nibble::Low,
        }
    }
}

impl Default for Case {
    fn default() -> Self {
        Case {
            t: 4,
            e: 4,
            k: 2,
            h: 64,
            i: 64,
            tp: 1,
            ep: 1,
            act: Activation::Swiglu,
            route: Route::SoftmaxRenorm,
            groups: 1,
            keep: 1,
            factor: 1000,
            zero: 0,
            w: WeightFormat::F32,
            qx: ActQuant::None,
            qh: ActQuant::None,
            mid_bf16: false,
            bias: Bias::None,
            scheme: Scheme::Spelled(PadSpec::default()),
            fill: Fill::Exact,
            seed: 0,
        }
    }
}

impl Case {
    /// What the router chooses from: experts, and identity experts behind them.
    pub fn choices(&self) -> u64 {
        self.e.saturating_add(self.zero)
    }

    /// What the layer computes besides its sizes.
    pub fn numerics(&self) -> Numerics {
        Numerics {
            route: self.route,
            groups: self.groups,
            keep: self.keep,
            factor: self.factor,
            zero: self.zero,
            qx: self.qx,
            qh: self.qh,
            mid_bf16: self.mid_bf16,
        }
    }
}

//! Holds outputs against the reference, or against another output of the same subject.
//!
//! It must not run anything. Layer 8.

use super::trial::{Trial, broken, proved};
use super::{Tier, Vacuous, Verdict};
use crate::case::Case;
use crate::compare::{Bound, Comparison, compare};
use crate::reference::{Reference, reference_for};
use crate::tensor::{Logical, Output};

/// What the layer should give, of a subject that rounds and adds as it says.
pub(super) fn truth(
    trial: &Trial<'_>,
    case: &Case,
    logical: &Logical,
) -> Result<Reference, Verdict> {
    reference_for(case, logical, trial.subject.arithmetic(case)).map_err(broken)
}

/// An output held against the reference.
pub(super) struct Against {
    pub(super) tier: Tier,
    pub(super) found: Comparison,
    /// Whether the bound allows most elements to be zero or twice what they are.
    pub(super) wide: bool,
}

impl Against {
    /// What agreement proved, in the end by a comparison of `tier`: nothing where the bound alone
    /// speaks and is as large as the output. Equal bits with the same shards unpadded prove that
    /// padding changed nothing, whatever the bound.
    pub(super) fn proved(&self, output: &Output, tier: Tier) -> Verdict {
        match proved(output, tier) {
            Verdict::Pass(Tier::Derived | Tier::OtherBits) if self.wide => {
                Verdict::Vacuous(Vacuous::BoundTooWide)
            }
            verdict => verdict,
        }
    }
}

/// Whether most elements differ from zero by no more than their limit. Infinities and NaN must be
/// met whatever the limit.
fn too_wide(values: &[f64], limits: &[f64]) -> bool {
    let wide = |(value, limit): &(&f64, &f64)| {
        value.is_finite() && **limit > 0.0 && value.abs() <= **limit
    };
    let count = values.iter().zip(limits).filter(wide).count();
    count * 2 > values.len()
}

/// Compares an output with the reference, by equal bits where it is exact, else by its bound;
/// tokens whose choice of experts hangs on rounding allow any finite value.
pub(super) fn against(truth: &Reference, output: &Output) -> Against {
    if truth.exact {
        let bound = Bound::EqualBits {
            why: Tier::Exact.name().into(),
        };
        return Against {
            tier: Tier::Exact,
            found: compare(&truth.values, output, &bound),
            wide: false,
        };
    }
    let mut limits = truth.bound.clone();
    for token in 0..output.tokens {
        if truth.ambiguous[token] {
            limits[token * output.hidden..(token + 1) * output.hidden].fill(f64::MAX);
        }
    }
    let bound = Bound::Derived {
        limits: &limits,
        derivation: Reference::DERIVATION.into(),
    };
    Against {
        tier: Tier::Derived,
        found: compare(&truth.values, output, &bound),
        wide: too_wide(&truth.values, &limits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_too_wide_when_most_elements_might_as_well_be_zero() {
        assert!(too_wide(&[1.0, -2.0, 3.0], &[1.0, 2.0, 0.5]));
        assert!(!too_wide(&[1.0, -2.0, 3.0], &[1.0, 1.9, 0.5]));
        // Zeros that must be met exactly, infinities and NaN are not free.
        let (values, limits) = ([0.0, f64::INFINITY, f64::NAN], [0.0, f64::MAX, f64::MAX]);
        assert!(!too_wide(&values, &limits));
        assert!(!too_wide(&[], &[]));
    }
}

//! What keeps a plan from being laid out.

/// A plan that describes no storage, or tensors that do not fit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A rank the plan does not have.
    #[error("rank={rank} exceeds the plan's {ranks} ranks")]
    NoRank {
        /// What was asked for.
        rank: usize,
        /// Ranks of the plan.
        ranks: usize,
    },
    /// A tensor the plan does not have, or the caller did not give.
    #[error("{tensor} is missing")]
    NoTensor {
        /// The tensor.
        tensor: &'static str,
    },
    /// Fewer positions than the layout needs: a wrong rule.
    #[error("{tensor} {axis}={has} is less than the {needed} that the layout needs")]
    TooSmall {
        /// The tensor.
        tensor: &'static str,
        /// The axis.
        axis: &'static str,
        /// Positions needed.
        needed: usize,
        /// Positions planned.
        has: usize,
    },
    /// A rank's range leaves the logical axis.
    #[error("{tensor} {axis}: range {start}+{len} leaves 0..{whole}")]
    Range {
        /// The tensor.
        tensor: &'static str,
        /// The axis.
        axis: &'static str,
        /// First logical position.
        start: usize,
        /// Positions.
        len: usize,
        /// Positions of the whole axis.
        whole: usize,
    },
    /// A local scale block covers elements of two blocks of the checkpoint.
    #[error(
        "{tensor} {axis}: local block {block} of {size} elements straddles two checkpoint blocks of {source_size}"
    )]
    Straddle {
        /// The tensor.
        tensor: &'static str,
        /// The axis.
        axis: &'static str,
        /// The local block.
        block: usize,
        /// Its elements.
        size: usize,
        /// Elements of a checkpoint block.
        source_size: usize,
    },
    /// A number that is not a multiple of what the layout moves as one.
    #[error("{tensor} {axis}={value} is not a multiple of {granule}")]
    Group {
        /// The tensor.
        tensor: &'static str,
        /// The axis.
        axis: &'static str,
        /// The number.
        value: usize,
        /// The granule.
        granule: usize,
    },
    /// A combination that no stack has.
    #[error("{tensor}: {what}")]
    Unsupported {
        /// The tensor.
        tensor: &'static str,
        /// What is asked for, as a fragment.
        what: &'static str,
    },
    /// Larger than this module is willing to index or allocate.
    #[error("{tensor}: {value} {unit} exceed the ceiling of {limit}")]
    TooLarge {
        /// The tensor, or `layer` for the sum.
        tensor: &'static str,
        /// The number.
        value: u64,
        /// What it counts.
        unit: &'static str,
        /// The ceiling.
        limit: u64,
    },
    /// A tensor or logical grid of another size than the plan says.
    #[error("{tensor} {what}: wanted {wanted}, got {actual}")]
    Size {
        /// The tensor.
        tensor: &'static str,
        /// Which size.
        what: &'static str,
        /// What the plan says.
        wanted: usize,
        /// What is there.
        actual: usize,
    },
}

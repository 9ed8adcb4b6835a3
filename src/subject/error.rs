//! Why a subject does not run a case, or could not.

/// Why a subject cannot run a plan; never a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// There is no device, or no driver for it.
    #[error("no device")]
    NoDevice,
    /// The property needs no subject, or none was chosen.
    #[error("no subject")]
    NoSubject,
    /// The working memory would pass the subject's ceiling.
    #[error("{what} needs {bytes} bytes; at most {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Bytes it needs.
        bytes: u64,
        /// The ceiling in bytes.
        limit: u64,
    },
    /// The case has nothing that the claim is about; no draw of its kind could prove it.
    #[error("{0}")]
    Inapplicable(String),
    /// The subject has no code for something in the plan.
    #[error("unsupported: {0}")]
    Unsupported(String),
}

/// A plan and tensors that do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// The subject does not support the plan; ask `supports` first.
    #[error(transparent)]
    Skipped(#[from] SkipReason),
    /// A number of the plan contradicts another one.
    #[error("plan: {key}={value}: {why}")]
    Plan {
        /// Which number.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What it contradicts.
        why: String,
    },
    /// A tensor that the plan needs is absent.
    #[error("rank {rank}: no tensor {tensor}")]
    Missing {
        /// The rank.
        rank: usize,
        /// The tensor.
        tensor: &'static str,
    },
    /// A tensor has another size than the plan says.
    #[error("{tensor}: {actual} {unit}, wanted {wanted}")]
    Size {
        /// The tensor.
        tensor: &'static str,
        /// What is counted.
        unit: &'static str,
        /// What the plan makes it.
        wanted: u64,
        /// What it is.
        actual: u64,
    },
    /// An expert id beyond the layer's experts.
    #[error("ids: token {token} wants expert {id} of {experts}")]
    Expert {
        /// The token.
        token: usize,
        /// The id.
        id: u32,
        /// How many experts there are.
        experts: u64,
    },
    /// A kernel did what no kernel may: left a guard overwritten, stood still, missed a barrier.
    #[error("{kernel}: {why}")]
    Kernel {
        /// Its name.
        kernel: &'static str,
        /// What it did.
        why: String,
    },
}

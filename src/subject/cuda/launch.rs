//! What is launched, and how: the words that host and device share.
//!
//! It must not launch anything. Layer 5.

#[cfg(feature = "cuda")]
use super::params::{ALIGN_THREADS, THREADS};
use crate::num::Dtype;

/// Which of a kernel's two paths are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Paths {
    /// The fast one wherever addresses and rows are multiples of sixteen bytes.
    #[default]
    Auto,
    /// The general one everywhere.
    General,
}

/// How the kernels are run; whatever is chosen, the bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelOptions {
    /// Which path.
    pub paths: Paths,
    /// Element type of the input where its values allow it; bfloat16 if left out.
    pub inputs: Option<Dtype>,
    /// Whether a rank sees -1 for experts that others hold, as expert-parallel dispatch writes it,
    /// instead of their ids.
    pub masked: bool,
}

/// A kernel of `kernels/moe.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    Align,
    First,
    Second,
}

impl Kernel {
    /// Its name in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kernel::Align => "pp_align",
            Kernel::First => "pp_gemm1",
            Kernel::Second => "pp_gemm2",
        }
    }

    /// Threads of a block (`PP_ALIGN_THREADS`, `PP_THREADS`).
    #[cfg(feature = "cuda")]
    pub(super) const fn threads(self) -> u32 {
        match self {
            Kernel::Align => ALIGN_THREADS,
            Kernel::First | Kernel::Second => THREADS,
        }
    }
}

/// One launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) kernel: Kernel,
    pub(super) inputs: Dtype,
    pub(super) weights: Dtype,
    pub(super) fast: bool,
    pub(super) grid: (u32, u32),
    pub(super) shared: usize,
}

/// Which kernel was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launched {
    /// Its name.
    pub kernel: &'static str,
    /// Whether on the fast path; false for kernels that have one path.
    pub fast: bool,
    /// Element type of the rows that it multiplies: x, or the intermediate.
    pub inputs: Dtype,
    /// Element type of the weights.
    pub weights: Dtype,
}

impl Launch {
    pub(super) const fn told(&self) -> Launched {
        Launched {
            kernel: self.kernel.name(),
            fast: self.fast,
            inputs: self.inputs,
            weights: self.weights,
        }
    }

    /// Whether the grid has a block.
    pub(super) const fn has_blocks(&self) -> bool {
        self.grid.0 > 0 && self.grid.1 > 0
    }
}

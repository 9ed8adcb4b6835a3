//! Finds a subject's orders of summation, and whether padding keeps them.

use super::black_box::{BlackBox, BoxError};
use super::carrier::Setup;
use crate::case::Case;
use crate::schedule::{Moved, RevealError, Revealed, Schedule, reveal};
use crate::subject::api::Subject;

/// A subject's order over one axis, bare and padded.
#[derive(Debug)]
pub struct Orders {
    /// What was asked for.
    pub setup: Setup,
    /// The layer that was run, unpadded.
    pub case: Case,
    /// The order of the bare products.
    pub bare: Revealed,
    /// Their order when they are padded, if that was asked for.
    pub padded: Option<Revealed>,
    /// Where the two orders differ.
    pub moved: Option<Moved>,
    /// The name that fits both.
    pub named: Option<Schedule>,
    /// The sizes that were run, bare and padded (elements): blocks of scales ask for whole ones.
    pub sizes: [u64; 2],
    /// Layers run.
    pub runs: usize,
}

/// The subject's orders over an axis.
///
/// # Errors
/// When it cannot be asked, or does not add as a tree of additions does.
pub fn orders(subject: &mut dyn Subject, setup: Setup) -> Result<Orders, RevealError<BoxError>> {
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let n = size(setup.n);
    let mut found = |setup: Setup| {
        let mut asked = BlackBox::new(&mut *subject, setup).map_err(RevealError::Box)?;
        let found = reveal(n, &mut asked)?;
        Ok((found, asked.case().clone(), asked.size(), asked.runs))
    };
    let (bare, case, wide, mut runs) = found(Setup {
        padded: setup.n,
        rows_padded: setup.rows,
        ..setup
    })?;
    let (mut padded, mut wider) = (None, wide);
    if setup.padded > setup.n || setup.rows_padded > setup.rows {
        let (found, _, wide, more) = found(setup)?;
        (runs, wider) = (runs + more, wide);
        padded = Some(found);
    }
    let mut trees = vec![(&bare.tree, size(wide))];
    trees.extend(padded.as_ref().map(|p| (&p.tree, size(wider))));
    let named = Schedule::of(&trees);
    let moved = padded.as_ref().and_then(|p| bare.tree.moved(&p.tree));
    Ok(Orders {
        setup,
        case,
        bare,
        padded,
        moved,
        named,
        sizes: [wide, wider],
        runs,
    })
}

//! One axis of a stored tensor: which unit of the input each unit of the output is.
//!
//! It knows nothing of formats: a unit is whatever the axis counts. Layer 8.

/// Units that follow each other in input and output, or padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// First unit in the input; none for padding.
    pub(super) source: Option<usize>,
    /// Units.
    pub(super) len: usize,
}

/// An axis in runs. Sources never go back: the input can be read once, from front to back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axis {
    /// Units in the input.
    pub(super) from: usize,
    /// Units in the output.
    pub(super) to: usize,
    pub(super) runs: Vec<Run>,
}

impl Axis {
    /// An axis that stays as it is.
    pub(super) fn whole(len: usize) -> Axis {
        let mut axis = Axis::empty();
        axis.push(Some(0), len);
        axis.from = len;
        axis
    }

    /// An axis without units.
    pub(super) fn empty() -> Axis {
        Axis {
            from: 0,
            to: 0,
            runs: Vec::new(),
        }
    }

    /// Appends units; those that go on where the last run ended join it.
    pub(super) fn push(&mut self, source: Option<usize>, len: usize) {
        if len == 0 {
            return;
        }
        self.to += len;
        if let Some(source) = source {
            self.from = self.from.max(source + len);
        }
        if let Some(last) = self.runs.last_mut() {
            let next = last.source.map(|s| s + last.len);
            if last.source.is_some() == source.is_some() && (source.is_none() || next == source) {
                last.len += len;
                return;
            }
        }
        self.runs.push(Run { source, len });
    }

    /// The same axis once more for each of `halves`, one after the other.
    pub(super) fn halves(&self, halves: usize) -> Axis {
        let mut all = Axis::empty();
        for half in 0..halves {
            for run in &self.runs {
                all.push(run.source.map(|s| s + half * self.from), run.len);
            }
        }
        all.from = halves * self.from;
        all
    }

    /// The same axis with `n` units in the place of each one.
    pub(super) fn times(&self, n: usize) -> Axis {
        let mut all = Axis::empty();
        for run in &self.runs {
            all.push(run.source.map(|s| s * n), run.len * n);
        }
        all.from = n * self.from;
        all
    }

    /// Whether nothing changes along it.
    pub(super) fn is_whole(&self) -> bool {
        self.from == self.to
            && self.runs.len() <= 1
            && self.runs.iter().all(|r| r.source == Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_where_they_go_on() {
        let mut axis = Axis::empty();
        for (source, len) in [
            (Some(0), 2),
            (Some(2), 1),
            (None, 1),
            (None, 2),
            (Some(3), 1),
            (Some(3), 1),
        ] {
            axis.push(source, len);
        }
        let run = |source, len| Run { source, len };
        assert_eq!(
            axis.runs,
            [
                run(Some(0), 3),
                run(None, 3),
                run(Some(3), 1),
                run(Some(3), 1)
            ]
        );
        assert_eq!((axis.from, axis.to), (4, 8));
        assert!(!axis.is_whole() && Axis::whole(5).is_whole() && Axis::whole(0).is_whole());
    }

    #[test]
    fn halves_and_pairs_repeat_the_axis() {
        let mut axis = Axis::empty();
        axis.push(Some(0), 3);
        axis.push(None, 1);
        let run = |source, len| Run { source, len };
        assert_eq!(
            axis.halves(2).runs,
            [run(Some(0), 3), run(None, 1), run(Some(3), 3), run(None, 1)]
        );
        assert_eq!(axis.times(2).runs, [run(Some(0), 6), run(None, 2)]);
    }
}

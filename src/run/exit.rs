//! Gives the exit codes their numbers.
//!
//! It must not end the process. Layer 9.

use super::{Ended, Outcome};

/// What the padproof command ends with (style.md C.3). The numbers are never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExitCode {
    /// 0: everything that ran passed; skips are allowed. Also a closed pipe.
    Passed,
    /// 1: at least one failure; of `plan`, a rule chosen with `--rule` or `--backend` does not run the
    /// model; of `diff`, the tables differ; of `shrink`, the case does not fail.
    Failed,
    /// 2: could not run: bad arguments, bad files, or the harness itself broke.
    Broken,
    /// 3: no failure, but a line reads VACUOUS, or coverage is below a suite's minimum.
    Vacuous,
    /// 4: nothing ran.
    NothingRan,
    /// 101: a panic in the tool itself, by Rust's own convention.
    Panicked,
    /// 130: interrupted; the report holds what had run.
    Interrupted,
}

impl ExitCode {
    /// Every code, in the order of its number.
    pub const ALL: [ExitCode; 7] = [
        ExitCode::Passed,
        ExitCode::Failed,
        ExitCode::Broken,
        ExitCode::Vacuous,
        ExitCode::NothingRan,
        ExitCode::Panicked,
        ExitCode::Interrupted,
    ];

    /// The number the process ends with.
    pub const fn number(self) -> u8 {
        match self {
            ExitCode::Passed => 0,
            ExitCode::Failed => 1,
            ExitCode::Broken => 2,
            ExitCode::Vacuous => 3,
            ExitCode::NothingRan => 4,
            ExitCode::Panicked => 101,
            ExitCode::Interrupted => 130,
        }
    }

    /// The code of a run; one where nothing ran ends with `nothing`.
    pub const fn of(outcome: &Outcome, nothing: ExitCode) -> Self {
        let counts = &outcome.counts;
        if matches!(outcome.ended, Ended::Interrupted) {
            ExitCode::Interrupted
        } else if counts.broken > 0 {
            ExitCode::Broken
        } else if counts.failed > 0 {
            ExitCode::Failed
        } else if counts.ran() == 0 {
            nothing
        } else if outcome.vacuous {
            ExitCode::Vacuous
        } else {
            ExitCode::Passed
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        std::process::ExitCode::from(code.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Counts;

    #[test]
    fn the_worst_of_a_run_decides_its_code() {
        let code = |passed, failed, broken, vacuous, ended| {
            let counts = Counts {
                passed,
                failed,
                broken,
                ..Counts::default()
            };
            let outcome = Outcome {
                counts,
                vacuous,
                ended,
            };
            ExitCode::of(&outcome, ExitCode::NothingRan).number()
        };
        assert_eq!(code(1, 0, 0, false, Ended::Whole), 0);
        assert_eq!(code(9, 1, 0, true, Ended::MaxFail), 1);
        assert_eq!(code(9, 1, 1, false, Ended::Whole), 2);
        assert_eq!(code(9, 0, 0, true, Ended::Whole), 3);
        assert_eq!(code(0, 0, 0, false, Ended::Whole), 4);
        assert_eq!(code(9, 1, 0, false, Ended::Interrupted), 130);
    }

    #[test]
    fn exit_codes_keep_their_numbers() {
        let numbers = ExitCode::ALL.map(ExitCode::number);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 101, 130]);
    }
}

//! The claim about subjects that reach one answer on two paths.

use super::trial::{Outcome, Trial, broken, is_padded, proved, settle};
use super::{Tier, Vacuous, Verdict};
use crate::case::Case;
use crate::compare::same_bits;
use crate::plan::unpadded;
use crate::subject::SkipReason;
use half::bf16;

/// device-pad-identity: padded on the fast path, padded on the general path and unpadded on the
/// general path, the same shards give the same bits. Input and intermediate are bfloat16, as stacks
/// hold them.
pub(super) fn device_pad_identity(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    const NAME: &str = "device-pad-identity";
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let inapplicable = |why: &str| Verdict::Skip(SkipReason::Inapplicable(why.to_owned()));
        let case = Case {
            mid_bf16: true,
            ..case.clone()
        };
        let plan = trial.plan(&case)?;
        if !trial.subject.has_paths() {
            return Err(inapplicable("the subject has one path only"));
        }
        trial.subject.supports(&plan).map_err(Verdict::Skip)?;
        if !trial.subject.fast(&plan) {
            return Err(inapplicable("the fast path does not take these rows"));
        }
        if !is_padded(&plan) {
            return Ok(Verdict::Vacuous(Vacuous::NothingPadded));
        }
        let mut logical = trial.fill(&case)?;
        for v in logical.x.f32s_mut() {
            *v = bf16::from_f32(*v).to_f32();
        }
        let mut packed = trial.pack(&plan, &logical)?;
        let fast = trial.run(&plan, &mut packed)?;
        trial.subject.keep_general(true);
        let general = trial.run_true(&plan, &packed);
        trial.done(packed);
        let bare = unpadded(&plan).map_err(broken);
        let unpadded = bare.and_then(|bare| {
            let packed = trial.pack_true(&bare, &logical)?;
            let output = trial.run_true(&bare, &packed);
            trial.done(packed);
            output
        });
        // Whatever came out, the next check finds the subject as it was.
        trial.subject.keep_general(false);
        for (wanted, why) in [
            (general?, "the same bytes on the general path"),
            (unpadded?, "the same shards unpadded, on the general path"),
        ] {
            let found = same_bits(&wanted, &fast);
            if !found.agree {
                return Ok(trial.fail(NAME, &case, &plan, Tier::SameOrder, why, &found));
            }
        }
        trial.done_with(logical);
        Ok(proved(&fast, Tier::SameOrder))
    };
    settle(run(trial))
}

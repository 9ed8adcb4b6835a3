//! Which rule of each stack serves a model best, and what becomes of the model's other parts there.
//!
//! It must not format text or plan. Layer 9.

use super::survey::{Survey, Surveyed};
use crate::plan::{Fit, Plan};
use crate::rule::{Status, share_device};
use crate::terms::{LayerKind, WeightFormat};

/// A stack's best rule for the first part of a model.
#[derive(Debug, Clone)]
pub struct Best<'s> {
    /// Its plan of that part.
    pub plan: &'s Surveyed,
    /// Parts that the rule's stack does not run beside it, as far as is known: a plan of each, and the
    /// best verdict that the stack has for it.
    pub beside: Vec<(&'s Plan, Fit)>,
}

impl Best<'_> {
    /// The worst verdict of the part and of those beside it.
    pub fn fit(&self) -> Fit {
        let others = self.beside.iter().map(|(_, fit)| *fit);
        others.fold(self.plan.plan.fit, Fit::max)
    }
}

impl Surveyed {
    /// The stack of its rule.
    pub fn stack(&self) -> &str {
        self.plan.rule.split('.').next().unwrap_or_default()
    }

    /// Whether a stack serves models with it: kernels are launched by stacks, and an emulation shows
    /// what a format computes.
    fn serves(&self) -> bool {
        self.status == Status::Current && !self.uncovered && !self.plan.kernel && !self.emulates
    }
}

impl Survey {
    /// The plans of each part: of one kind of layer, and where routed experts have several formats of one
    /// of them.
    pub fn parts(&self) -> Vec<Vec<&Surveyed>> {
        let several = !self.model.quant.others.is_empty();
        let key = |one: &Surveyed| -> (LayerKind, Option<WeightFormat>) {
            let plan = &one.plan;
            let told = several && plan.layer == LayerKind::Routed;
            (plan.layer, told.then_some(plan.weight))
        };
        let mut parts: Vec<Vec<&Surveyed>> = Vec::new();
        for one in &self.plans {
            match parts.iter_mut().find(|part| key(part[0]) == key(one)) {
                Some(part) => part.push(one),
                None => parts.push(vec![one]),
            }
        }
        parts
    }

    /// The best current rule of each stack for the first part, a CPU's only where there is no other: of equals
    /// the one that the stack takes by itself, then one whose source leaves nothing open.
    pub fn best_of_stacks(&self) -> Vec<Best<'_>> {
        let parts = self.parts();
        let key = |best: &Best<'_>| {
            let plan = &best.plan.plan;
            let (cpu, open) = (plan.arch == ["cpu"], !plan.unread.is_empty());
            let cost = plan.overhead_millionths;
            (cpu, best.fit(), cost, !best.plan.auto, open)
        };
        let mut all: Vec<Best<'_>> = Vec::new();
        let first = parts.first().into_iter().flatten();
        for plan in first.copied().filter(|one| one.serves()) {
            let one = Best {
                plan,
                beside: beside(&parts, plan),
            };
            match all
                .iter_mut()
                .find(|known| known.plan.stack() == plan.stack())
            {
                Some(known) if key(&one) < key(known) => *known = one,
                Some(_) => {}
                None => all.push(one),
            }
        }
        all
    }
}

/// The other parts that a rule's stack does not run: what the rule itself says of one counts before the best
/// that its stack has.
fn beside<'s>(parts: &[Vec<&'s Surveyed>], one: &Surveyed) -> Vec<(&'s Plan, Fit)> {
    let fit = |plans: &[&Surveyed]| {
        let own = plans.iter().find(|p| p.plan.rule == one.plan.rule);
        // A rule for other devices serves no model that runs on this one's.
        let near = |p: &&&Surveyed| share_device(&p.plan.arch, &one.plan.arch);
        let same = plans.iter().filter(|p| p.serves() || p.uncovered);
        let same = same.filter(near);
        let stack = same
            .filter(|p| p.stack() == one.stack())
            .map(|p| p.plan.fit);
        own.map(|p| p.plan.fit).or(stack.min())
    };
    let others = parts.iter().skip(1);
    others
        .filter_map(|plans| Some((&plans[0].plan, fit(plans)?)))
        .filter(|(_, fit)| *fit > Fit::Slow)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::plan::{Fit, Parallel};
    use crate::rule::Rules;
    use crate::run::{Query, survey};

    /// The experts' best rule is for GPUs; the one rule of its stack for this shared expert is the CPU's, which
    /// stood for all of them.
    #[test]
    fn a_stack_is_no_better_than_its_worst_part_on_the_same_device() {
        let mut model = crate::model::load("Qwen3-Next-80B-A3B").unwrap();
        model.quant.format = crate::terms::WeightFormat::Fp8Block;
        let asked = Query::of(Parallel { tp: 8, ep: 8 });
        let found = survey(&model, Rules::builtin(), &asked).unwrap();
        let best = found.best_of_stacks();
        let sglang = best
            .iter()
            .find(|one| one.plan.stack() == "sglang")
            .unwrap();
        assert_eq!(sglang.plan.plan.fit, Fit::Fits);
        let cpu = |one: &&crate::run::Surveyed| one.plan.rule == "sglang.cpu.any";
        assert!(found.parts()[1].iter().copied().any(|one| cpu(&one)));
        assert_eq!(sglang.fit(), Fit::Unknown);
    }

    #[test]
    fn an_emulation_and_a_kernel_stand_for_no_stack() {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let asked = Query::of(Parallel { tp: 8, ep: 1 });
        let found = survey(&model, Rules::builtin(), &asked).unwrap();
        assert!(found.plans.iter().any(|one| one.emulates));
        assert!(found.plans.iter().any(|one| one.plan.kernel));
        let best = found.best_of_stacks();
        assert!(best.len() > 1);
        let none = |one: &super::Best<'_>| one.plan.emulates || one.plan.plan.kernel;
        assert!(!best.iter().any(none));
    }
}

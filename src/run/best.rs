//! Which rule of each stack serves a model best, and what becomes of the model's other parts there.
//!
//! It must not format text or plan. Layer 9.

use super::parts::of_stack;
use super::survey::{Survey, Surveyed};
use crate::plan::{Fit, Plan};
use crate::rule::{Status, share_device};
use crate::terms::{LayerKind, WeightFormat};

/// A stack's best rule for the first part of a model.
#[derive(Debug, Clone)]
pub struct Best<'s> {
    /// Its plan of that part.
    pub plan: &'s Surveyed,
    /// Parts that the rule's stack does not run beside it, as far as is known.
    pub beside: Vec<Other<'s>>,
}

/// What becomes of another part under a rule's stack.
#[derive(Debug, Clone, Copy)]
pub struct Other<'s> {
    /// A plan of the part, whosever.
    pub plan: &'s Plan,
    /// The best verdict that the stack has for it on the rule's devices.
    pub fit: Fit,
    /// Whether a rule of the stack says anything of the part there.
    pub read: bool,
}

impl Best<'_> {
    /// The worst verdict of the part and of those beside it.
    pub fn fit(&self) -> Fit {
        let others = self.beside.iter().map(|one| one.fit);
        others.fold(self.plan.plan.fit, Fit::max)
    }

    /// Of two rules the better has the less: whether all parts run, whether the first does, what that costs.
    pub fn rank(&self) -> (Fit, Fit, u64) {
        let plan = &self.plan.plan;
        (self.fit(), plan.fit, plan.overhead_millionths)
    }
}

impl Surveyed {
    /// Whether a stack serves models with it: kernels are launched by stacks, an emulation shows what a
    /// format computes, and a dispatch multiplies nothing.
    fn serves(&self) -> bool {
        let serves = !self.uncovered && !self.plan.kernel && !self.emulates && !self.dispatch;
        self.status == Status::Current && serves
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

    /// The best current rule of each stack for the first part, an XPU's only where there is none for other
    /// GPUs, and a CPU's where there is no other. Where another part decides alike, the first part's own
    /// verdict counts, then the cost; of equals the one that the stack takes by itself, then one whose source
    /// leaves nothing open.
    pub fn best_of_stacks(&self) -> Vec<Best<'_>> {
        let parts = self.parts();
        let key = |best: &Best<'_>| {
            let plan = &best.plan.plan;
            let only = |device: &str| plan.arch == [device];
            let (devices, open) = ((only("cpu"), only("xpu")), !plan.unread.is_empty());
            let (fit, cost) = (best.rank(), !best.plan.auto);
            (devices, fit, cost, open)
        };
        let mut all: Vec<Best<'_>> = Vec::new();
        let first = parts.first().into_iter().flatten();
        for plan in first.copied().filter(|one| one.serves()) {
            let one = Best {
                plan,
                beside: beside(&parts, plan),
            };
            match all.iter_mut().find(|known| known.plan.stack == plan.stack) {
                Some(known) if key(&one) < key(known) => *known = one,
                Some(_) => {}
                None => all.push(one),
            }
        }
        all
    }
}

/// The other parts that a rule's stack does not run: what the rule itself says of one counts before the best
/// that its stack has, and that before a part of which nothing was read.
fn beside<'s>(parts: &[Vec<&'s Surveyed>], one: &Surveyed) -> Vec<Other<'s>> {
    let judged = |plans: &[&'s Surveyed]| -> Option<Other<'s>> {
        let plan = &plans.first()?.plan;
        let own = plans.iter().find(|p| p.plan.rule == one.plan.rule);
        let same = plans.iter().filter(|p| p.stack == one.stack);
        // A rule for other devices serves no model that runs on this one's.
        let near = |p: &&&Surveyed| p.serves() && share_device(&p.plan.arch, &one.plan.arch);
        let best = same
            .clone()
            .filter(near)
            .map(|p| of_stack(&p.plan, p.whole))
            .min();
        let read = own.map(|p| p.plan.fit).or(best);
        let open = same.clone().any(|p| p.uncovered).then_some(Fit::Unknown);
        Some(Other {
            plan,
            fit: read.or(open)?,
            read: read.is_some(),
        })
    };
    let others = parts.iter().skip(1);
    others
        .filter_map(|plans| judged(plans))
        .filter(|part| part.fit > Fit::Slow)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::plan::{Fit, Parallel};
    use crate::rule::Rules;
    use crate::run::{Query, survey};
    use crate::terms::WeightFormat;

    /// The experts' best rule is for GPUs; the one rule of its stack for this shared expert is the CPU's, which
    /// stood for all of them.
    #[test]
    fn a_stack_is_no_better_than_its_worst_part_on_the_same_device() {
        let mut model = crate::model::load("Qwen3-Next-80B-A3B").unwrap();
        model.quant.format = crate::terms::WeightFormat::Fp8Block;
        let asked = Query::of(Parallel { tp: 8, ep: 8 });
        let found = survey(&model, Rules::builtin(), &asked).unwrap();
        let best = found.best_of_stacks();
        let sglang = best.iter().find(|one| one.plan.stack == "sglang").unwrap();
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

    /// An unknown dispatch stood before GEMMs that all refuse.
    #[test]
    fn a_dispatch_stands_for_no_stack() {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let asked = Query {
            rule: Some("vllm.*.any"),
            ..Query::of(Parallel { tp: 8, ep: 8 })
        };
        let found = survey(&model, Rules::builtin(), &asked).unwrap();
        assert!(found.plans.iter().any(|one| one.dispatch));
        assert!(!found.best_of_stacks().iter().any(|one| one.plan.dispatch));
    }

    fn planned(model: &str, weights: Option<WeightFormat>, tp: u64) -> crate::run::Survey {
        let mut model = crate::model::load(model).unwrap();
        if let Some(format) = weights {
            model.quant.format = format;
            model.quant.shared_format = format;
            model.quant.dense_format = format;
        }
        let asked = Query {
            all: false,
            ..Query::of(Parallel { tp, ep: 1 })
        };
        survey(&model, Rules::builtin(), &asked).unwrap()
    }

    fn of<'s>(best: &'s [super::Best<'_>], stack: &str) -> &'s super::Best<'s> {
        best.iter().find(|one| one.plan.stack == stack).unwrap()
    }

    /// The one rule for the shared expert that GPUs have refuses it; a row for the XPU, where none has a rule,
    /// made that unknown.
    #[test]
    fn a_refusal_on_its_devices_beats_what_nobody_read_for_others() {
        let asked = [
            ("DeepSeek-V4-Pro", 32),
            ("DeepSeek-V4-Pro", 16),
            ("DeepSeek-V4-Flash", 32),
        ];
        for (model, tp) in asked {
            let found = planned(model, None, tp);
            let best = found.best_of_stacks();
            let sglang = of(&best, "sglang");
            assert_eq!(sglang.fit(), Fit::Refused, "{model} {tp}");
            assert!(sglang.plan.plan.fit < Fit::Unknown, "{model} {tp}");
            assert!(sglang.beside.iter().all(|part| part.read));
            let vllm = of(&best, "vllm");
            assert!(vllm.beside.iter().any(|part| !part.read));
        }
    }

    /// Marlin's linear layers, which nobody says are SGLang's choice (facts/upstream-padding.md 1.1 S7), made all
    /// of its backends fit.
    #[test]
    fn one_backend_of_linear_layers_stands_for_no_whole_stack() {
        let found = planned("DeepSeek-V3", Some(WeightFormat::Nvfp4), 8);
        let marlin = |one: &&crate::run::Surveyed| one.plan.rule == "sglang.marlin.nvfp4.linear";
        assert!(found.parts()[1].iter().copied().any(|one| marlin(&one)));
        let best = found.best_of_stacks();
        let sglang = of(&best, "sglang");
        assert_eq!(
            (sglang.plan.plan.fit, sglang.fit()),
            (Fit::Fits, Fit::Unknown)
        );
        // What `auto` takes does stand for it.
        let found = planned("DeepSeek-V3", None, 8);
        assert_eq!(of(&found.best_of_stacks(), "sglang").fit(), Fit::Fits);
    }

    /// The headline left the shared layer open where the advice let Marlin stand for the stack.
    #[test]
    fn advice_says_of_a_stack_what_the_headline_says() {
        for (tp, fit) in [(8, Fit::Unknown), (6, Fit::Refused)] {
            let mut model = crate::model::load("DeepSeek-V3").unwrap();
            let quant = &mut model.quant;
            quant.format = WeightFormat::Nvfp4;
            (quant.shared_format, quant.dense_format) = (quant.format, quant.format);
            let asked = Query {
                all: false,
                advice: true,
                ..Query::of(Parallel { tp, ep: 1 })
            };
            let found = survey(&model, Rules::builtin(), &asked).unwrap();
            let best = found.best_of_stacks();
            let sglang = of(&best, "sglang");
            assert_eq!(sglang.fit(), fit, "{tp}");
            let rule = &sglang.plan.plan.rule;
            let advised = found.advice.rules.iter().find(|one| one.rule == *rule);
            assert_eq!(advised.unwrap().verdict, fit, "{tp} {rule}");
        }
    }

    /// A rule's id need not begin with its stack.
    #[test]
    fn a_stack_is_the_rules_own_word_whatever_its_id() {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let mut more = Rules::builtin().get("vllm.marlin.mxfp4").unwrap().clone();
        more.id = "mine.marlin.mxfp4".to_owned();
        let rules = Rules::of(vec![more], "test").unwrap();
        let rules = Rules::builtin().clone().with(rules);
        let asked = Query::of(Parallel { tp: 8, ep: 1 });
        let found = survey(&model, &rules, &asked).unwrap();
        let stacks: Vec<String> = found
            .best_of_stacks()
            .iter()
            .map(|one| one.plan.stack.clone())
            .collect();
        assert!(stacks.iter().any(|stack| stack == "vllm"));
        assert!(!stacks.iter().any(|stack| stack == "mine"), "{stacks:?}");
    }

    /// With the dense layers unknown anyway the lesser overhead decided, and that is an unknown rule's.
    #[test]
    fn a_rule_known_to_run_beats_an_unknown_one_where_another_part_is_open() {
        let found = planned("Gemma-4-26B-A4B", Some(WeightFormat::Nvfp4), 4);
        let best = found.best_of_stacks();
        let sglang = of(&best, "sglang");
        assert_eq!(sglang.plan.plan.fit, Fit::Padded);
        assert_eq!(sglang.plan.plan.rule, "sglang.flashinfer_trtllm.nvfp4");
        assert_eq!(sglang.fit(), Fit::Unknown);
    }
}

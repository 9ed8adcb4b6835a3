//! One attempt: a subject, perhaps a mutant, and memory that is used again.

use super::stages::first_difference;
use super::{Finding, Tier, Vacuous, Verdict};
use crate::case::Case;
use crate::compare::{Comparison, Difference};
use crate::fill::{FillError, fill_in};
use crate::layout::{LayoutError, PackedInputs, pack_layer_in};
use crate::mutant::{Mutant, Stage, repack};
use crate::plan::{Fit, Plan, plan_with, unpadded, unpadded_in};
use crate::reference::{Reference, stages};
use crate::rule::Rules;
use crate::subject::{Allocated, Misbehaviour, SkipReason, Subject, SubjectError};
use crate::tensor::{Logical, Output, Pool};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a property works with: the subject under test, and a mutant to be planted.
pub struct Trial<'a> {
    /// The subject.
    pub subject: &'a mut dyn Subject,
    /// The mutant, if one is planted.
    pub mutant: Option<&'static Mutant>,
    /// Whether the planted mutant changed anything so far.
    pub planted: bool,
    /// The rules that cases may name, and that claims about plans go through.
    pub(super) rules: &'a Rules,
    /// The property and the case that findings about the subject itself are filed under.
    asked: (&'static str, String),
    memory: Memory,
}

/// What a trial leaves to the next one of the same subject: spare memory, and which sums padding
/// is known to leave alone.
#[derive(Debug, Default)]
pub struct Memory {
    pool: Pool,
    stable: HashMap<(u64, u64), bool>,
}

impl<'a> Trial<'a> {
    /// A trial of `subject` as it is.
    pub fn new(subject: &'a mut dyn Subject) -> Self {
        Trial {
            subject,
            mutant: None,
            planted: false,
            rules: Rules::builtin(),
            asked: ("-", String::new()),
            memory: Memory::default(),
        }
    }

    /// The same for a question of which the subject and its findings know.
    pub fn about(mut self, property: &'static str, case: &Case) -> Self {
        self.subject.about(case);
        self.asked = (property, case.to_string());
        self
    }

    /// The same with these rules instead of the shipped ones.
    pub fn under(self, rules: &'a Rules) -> Self {
        Trial { rules, ..self }
    }

    /// The same with `mutant` planted.
    pub fn mutated(subject: &'a mut dyn Subject, mutant: &'static Mutant) -> Self {
        Trial {
            mutant: Some(mutant),
            ..Trial::new(subject)
        }
    }

    /// The same with what an earlier trial of the same subject kept.
    pub fn with_memory(self, memory: Memory) -> Self {
        Trial { memory, ..self }
    }

    /// What the next trial of this subject may use.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// The plan of the same shards unpadded. A program may take one order of w13's rows only.
    pub(super) fn bare(&self, plan: &Plan) -> Result<Plan, Verdict> {
        let made = match self.subject.reveals() {
            true => unpadded_in(plan, plan.order),
            false => unpadded(plan),
        };
        made.map_err(broken)
    }

    /// Whether padding leaves the subject's order of summation alone on both axes, so that bits must
    /// be equal: `ids` are the experts chosen.
    pub(super) fn keeps_order(&mut self, bare: &Plan, plan: &Plan, ids: &[u32]) -> bool {
        if self.subject.schedule().is_some() {
            return self.stable(plan.width, plan.width_padded)
                && self.stable(plan.dims.h, plan.hidden_padded);
        }
        if !self.subject.reveals() {
            return false;
        }
        let mut served: BTreeMap<u32, u64> = BTreeMap::new();
        for id in ids {
            *served.entry(*id).or_default() += 1;
        }
        // Kernels choose their path by an expert's tokens, by all tokens, or by all rows.
        let mut counts: BTreeSet<u64> = served.into_values().collect();
        counts.extend([plan.dims.t, plan.tokens_padded, ids.len() as u64]);
        counts.remove(&0);
        let counts: Vec<u64> = counts.into_iter().collect();
        self.subject.keeps_order(bare, plan, &counts)
    }

    /// Whether other bits than the unpadded layer's are a failure where padding keeps the order. An
    /// order that was found and not promised tells no steps: a product may be fused into its sum in
    /// one shape and rounded before in the other, and only the bound holds then.
    pub(super) fn promises_bits(&self) -> bool {
        !self.subject.reveals()
    }

    /// Whether the subject adds in an order that padding from `n` to `padded` leaves alone.
    fn stable(&mut self, n: u64, padded: u64) -> bool {
        let Some(schedule) = self.subject.schedule() else {
            return false;
        };
        let index = |n: u64| usize::try_from(n).ok();
        let (Some(small), Some(large)) = (index(n), index(padded)) else {
            return false;
        };
        *self
            .memory
            .stable
            .entry((n, padded))
            .or_insert_with(|| n == padded || schedule.pad_stable(small, large))
    }

    /// The case's plan; a plan that the rule refuses is a skip.
    pub(super) fn plan(&mut self, case: &Case) -> Result<Plan, Verdict> {
        let mut made = plan_with(case, self.rules).map_err(broken)?;
        runnable(&made)?;
        self.mutate_plan(&mut made);
        Ok(made)
    }

    /// The case's plan, whatever the rule says of it.
    pub(super) fn any_plan(&mut self, case: &Case) -> Result<Plan, Verdict> {
        let mut made = plan_with(case, self.rules).map_err(broken)?;
        self.mutate_plan(&mut made);
        Ok(made)
    }

    /// The sizes that the subject's stack allocates.
    pub(super) fn allocated(&mut self, plan: &Plan, width: u64) -> Result<Allocated, Verdict> {
        let told = self.subject.allocated(plan, width);
        told.map_err(|e| self.unable(e))
    }

    pub(super) fn mutate_plan(&mut self, plan: &mut Plan) {
        if let Some(Mutant {
            stage: Stage::Plan(change),
            ..
        }) = self.mutant
        {
            self.planted |= change(plan);
        }
    }

    /// Logical tensors of the case.
    pub(super) fn fill(&mut self, case: &Case) -> Result<Logical, Verdict> {
        fill_in(case, &mut self.memory.pool).map_err(|e| match e {
            FillError::TooLarge { .. } | FillError::TooManyChoices { .. } => {
                Verdict::Skip(SkipReason::Unsupported(e.to_string()))
            }
            other => Verdict::Broken(other.to_string()),
        })
    }

    /// Packs as the plan says, or as the planted mutant does.
    pub(super) fn pack(&mut self, plan: &Plan, logical: &Logical) -> Result<PackedInputs, Verdict> {
        let (wrong, alone) = match self.mutant.map(|m| m.stage) {
            Some(Stage::Layout(wrong)) => (wrong(plan), None),
            Some(Stage::LayoutOf(wrong, roles)) => (None, wrong(plan).map(|w| (w, roles))),
            _ => (None, None),
        };
        self.planted |= wrong.is_some() || alone.is_some();
        let mut packed = self.pack_true(wrong.as_ref().unwrap_or(plan), logical)?;
        if let Some((wrong, roles)) = alone {
            repack(&wrong, roles, logical, &mut packed);
        }
        if let Some(Mutant {
            stage: Stage::Bytes(change),
            ..
        }) = self.mutant
        {
            self.planted |= change(plan, &mut packed);
        }
        Ok(packed)
    }

    /// Packs as the plan says, whatever is planted: for the side that is compared with.
    pub(super) fn pack_true(
        &mut self,
        plan: &Plan,
        logical: &Logical,
    ) -> Result<PackedInputs, Verdict> {
        pack_layer_in(plan, logical, &mut self.memory.pool).map_err(|e| match e {
            LayoutError::TooLarge { .. } => Verdict::Skip(SkipReason::Unsupported(e.to_string())),
            other => broken(other),
        })
    }

    /// Gives packed memory back for the next case.
    pub(super) fn done(&mut self, packed: PackedInputs) {
        packed.give_back(&mut self.memory.pool);
    }

    /// Gives the memory of logical tensors back.
    pub(super) fn done_with(&mut self, logical: Logical) {
        self.memory.pool.keep_layer(logical);
    }

    /// Runs the subject, and what the planted mutant makes of its output.
    pub(super) fn run(
        &mut self,
        plan: &Plan,
        packed: &mut PackedInputs,
    ) -> Result<Output, Verdict> {
        let mut output = self.run_true(plan, packed)?;
        if let Some(Mutant {
            stage: Stage::Output(change),
            ..
        }) = self.mutant
        {
            self.planted |= change(plan, packed, &mut output);
        }
        Ok(output)
    }

    /// Runs the subject on several inputs of one plan, and what the planted mutant makes of each.
    pub(super) fn run_all(
        &mut self,
        plan: &Plan,
        inputs: &mut [PackedInputs],
    ) -> Result<Vec<Output>, Verdict> {
        if self.mutant.is_some() || inputs.len() == 1 {
            let inputs = inputs.iter_mut();
            return inputs.map(|packed| self.run(plan, packed)).collect();
        }
        self.subject.supports(plan).map_err(Verdict::Skip)?;
        let asked: Vec<(&Plan, &PackedInputs)> = inputs.iter().map(|i| (plan, i)).collect();
        let ran = self.subject.run_all(&asked);
        ran.map_err(|e| self.unable(e))
    }

    /// The whole way once: plan, fill, pack, run.
    pub(super) fn attempt(&mut self, case: &Case) -> Result<(Plan, Logical, Output), Verdict> {
        let plan = self.plan(case)?;
        let logical = self.fill(case)?;
        let mut packed = self.pack(&plan, &logical)?;
        let output = self.run(&plan, &mut packed)?;
        self.done(packed);
        Ok((plan, logical, output))
    }

    /// Runs the subject, whatever is planted.
    pub(super) fn run_true(
        &mut self,
        plan: &Plan,
        packed: &PackedInputs,
    ) -> Result<Output, Verdict> {
        self.subject.supports(plan).map_err(Verdict::Skip)?;
        let ran = self.subject.run(plan, packed);
        ran.map_err(|e| self.unable(e))
    }

    /// The verdict of a run that gave no output.
    fn unable(&self, e: SubjectError) -> Verdict {
        match e {
            SubjectError::Skipped(reason) => Verdict::Skip(reason),
            SubjectError::Misbehaved { what, stderr } => self.misbehaved(&what, stderr),
            other => Verdict::Broken(other.to_string()),
        }
    }

    /// The finding that the subject did what none may.
    fn misbehaved(&self, what: &Misbehaviour, stderr: Vec<String>) -> Verdict {
        let many = matches!(what, Misbehaviour::Memory { .. });
        let last = match many {
            true => Some("one case alone does not show it".to_owned()),
            false => last_words(&stderr),
        };
        Verdict::Fail(Box::new(Finding {
            property: self.asked.0,
            subject: self.subject.name().to_owned(),
            case: self.asked.1.clone(),
            place: "the subject".to_owned(),
            wanted: String::new(),
            actual: what.to_string(),
            bound: "docs/subject-protocol.md".to_owned(),
            derivation: String::new(),
            differing: 0,
            total: 0,
            first: stderr,
            note: last,
            many,
        }))
    }

    /// A failing verdict from a comparison of outputs.
    pub(super) fn fail(
        &self,
        property: &'static str,
        case: &Case,
        plan: &Plan,
        tier: Tier,
        derivation: &str,
        found: &Comparison,
    ) -> Verdict {
        let first = found.first.first();
        let total = found.elements.max(found.differing);
        let notes = padding_note(plan).into_iter();
        let notes: Vec<String> = notes.chain(last_words(&self.subject.said())).collect();
        Verdict::Fail(Box::new(Finding {
            property,
            subject: self.subject.name().to_owned(),
            case: case.to_string(),
            place: first.map_or("out".to_owned(), |d| format!("out[{},{}]", d.row, d.col)),
            wanted: first.map_or_else(|| shape_text(found, true), |d| number(d.wanted)),
            actual: first.map_or_else(|| shape_text(found, false), |d| number(f64::from(d.actual))),
            bound: match first {
                Some(d) if tier == Tier::Derived => format!("{} {:e}", tier.name(), d.bound),
                _ => tier.name().to_owned(),
            },
            derivation: derivation.to_owned(),
            differing: found.differing as u64,
            total: total as u64,
            first: found.first.iter().map(line).collect(),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            many: false,
        }))
    }
}

/// What a program wrote last, as a note.
fn last_words(stderr: &[String]) -> Option<String> {
    stderr.last().map(|line| format!("it wrote last: {line}"))
}

/// A failing verdict against the reference, with the first stage that differs where the subject
/// shows its stages.
pub(super) struct Missed<'a> {
    pub(super) property: &'static str,
    pub(super) case: &'a Case,
    pub(super) plan: &'a Plan,
    pub(super) logical: &'a Logical,
    pub(super) truth: &'a Reference,
}

impl Missed<'_> {
    /// The verdict.
    pub(super) fn verdict(&self, trial: &Trial<'_>, tier: Tier, found: &Comparison) -> Verdict {
        let (case, plan) = (self.case, self.plan);
        let why = Reference::DERIVATION;
        let verdict = trial.fail(self.property, case, plan, tier, why, found);
        let Verdict::Fail(mut finding) = verdict else {
            return verdict;
        };
        let shown = trial.subject.stages();
        let stage = shown.and_then(|shown| {
            let wanted = stages(case, self.logical, trial.subject.arithmetic(case)).ok();
            first_difference(case, plan, wanted.as_ref(), self.truth, shown)
        });
        let notes: Vec<String> = finding.note.take().into_iter().chain(stage).collect();
        finding.note = (!notes.is_empty()).then(|| notes.join("; "));
        Verdict::Fail(finding)
    }
}

/// Either arm is a property's verdict: `?` leaves with the first that settles it.
pub(super) type Outcome = Result<Verdict, Verdict>;

/// The verdict of either arm.
pub(super) fn settle(outcome: Outcome) -> Verdict {
    outcome.unwrap_or_else(|verdict| verdict)
}

/// The harness itself failed.
pub(super) fn broken(e: impl std::fmt::Display) -> Verdict {
    Verdict::Broken(e.to_string())
}

/// A finding about integers or bytes: one of one, unless the caller counts.
pub(super) fn fact(
    property: &'static str,
    case: &Case,
    place: String,
    wanted: String,
    actual: String,
) -> Finding {
    Finding {
        property,
        subject: "-".to_owned(),
        case: case.to_string(),
        place,
        wanted,
        actual,
        bound: Tier::Bytes.name().to_owned(),
        derivation: String::new(),
        differing: 1,
        total: 1,
        first: Vec::new(),
        note: None,
        many: false,
    }
}

/// Refused, unrepresentable and wrong plans are not run.
pub(super) fn runnable(plan: &Plan) -> Result<(), Verdict> {
    if plan.fit <= Fit::Unknown {
        return Ok(());
    }
    let why = plan.violations.iter().max_by_key(|v| v.effect);
    Err(Verdict::Skip(SkipReason::Unsupported(format!(
        "plan {}: {}",
        plan.fit.name(),
        why.map_or("", |v| v.message.as_str())
    ))))
}

/// Whether any axis of the plan holds padding.
pub fn is_padded(plan: &Plan) -> bool {
    plan.ranks.iter().any(|r| r.len < plan.width_padded)
        || plan.hidden_padded > plan.dims.h
        || plan.tokens_padded > plan.dims.t
}

/// What agreement on `output` proved: nothing when most of it is zero.
pub(super) fn proved(output: &Output, tier: Tier) -> Verdict {
    if output.values.is_empty() {
        return Verdict::Vacuous(Vacuous::NoTokens);
    }
    let live = output.values.iter().filter(|v| **v != 0.0).count();
    if live * 4 < output.values.len() {
        return Verdict::Vacuous(Vacuous::MostlyZero);
    }
    Verdict::Pass(tier)
}

fn number(v: f64) -> String {
    format!("{v} ({:#010x})", (v as f32).to_bits())
}

fn line(d: &Difference) -> String {
    format!(
        "out[{},{}] wanted {}, got {}",
        d.row,
        d.col,
        number(d.wanted),
        number(f64::from(d.actual))
    )
}

fn shape_text(found: &Comparison, wanted: bool) -> String {
    match found.shapes {
        Some((w, a)) => {
            let s = if wanted { w } else { a };
            format!("shape [{}, {}]", s.tokens, s.hidden)
        }
        None => "output".to_owned(),
    }
}

fn padding_note(plan: &Plan) -> Option<String> {
    let first = plan.ranks.first()?;
    let mut parts = Vec::new();
    if first.len < plan.width_padded {
        parts.push(format!(
            "intermediate {}..{} of rank 0 is padding",
            first.len, plan.width_padded
        ));
    }
    if plan.dims.h < plan.hidden_padded {
        parts.push(format!(
            "hidden {}..{} is padding",
            plan.dims.h, plan.hidden_padded
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

//! Plans a model's layers under every rule that concerns them.
//!
//! It must not format text, or decide anything that `plan` decides. Layer 9.

use super::Advice;
use super::candidates::on_arch;
use super::parts::{Parts, Silent};
use crate::model::Model;
use crate::plan::{
    Effect, Fit, Parallel, Plan, PlanError, RANKS_MAX, aligned_tp, replicated, uncovered,
};
use crate::rule::{Rule, RuleError, Rules, Sizes, Status, Verdict};
use crate::terms::{LayerKind, Place};

/// What is asked about a model.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Ranks.
    pub parallel: Parallel,
    /// Tokens that size the activations.
    pub tokens: u64,
    /// Rule id or glob; every rule that takes the format if left out.
    pub rule: Option<&'a str>,
    /// Only rules of this backend.
    pub backend: Option<&'a str>,
    /// Only this part of the model.
    pub layer: Option<LayerKind>,
    /// Environment variables that are set to a true value.
    pub env: &'a [&'a str],
    /// Whether rules that no version ships today are planned too.
    pub all: bool,
    /// Only what is known of this architecture.
    pub arch: Option<&'a str>,
    /// Versions of stacks to plan for, instead of the newest that was read.
    pub versions: &'a [StackVersion],
    /// Whether to look for ranks that need no padding.
    pub advice: bool,
}

impl Query<'_> {
    /// Every rule, historical ones too, for every part of a model on these ranks: one token, the
    /// newest versions, no advice.
    pub const fn of(parallel: Parallel) -> Self {
        Query {
            parallel,
            tokens: 1,
            rule: None,
            backend: None,
            layer: None,
            env: &[],
            all: true,
            arch: None,
            versions: &[],
            advice: false,
        }
    }
}

/// A version of a stack that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackVersion {
    /// The stack; left out, the only one that the chosen rules have.
    pub stack: Option<String>,
    /// The version.
    pub version: String,
}

/// One plan of a survey.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// The plan.
    pub plan: Plan,
    /// Whether the rule describes code that is shipped today.
    pub status: Status,
    /// The rule's stack.
    pub stack: String,
    /// Whether the stack's `auto` takes this rule's backend for the model.
    pub auto: bool,
    /// Whether it is the stack's path whatever backend is chosen for other parts: `auto` takes it, no backend
    /// is named, or a CPU has no other.
    pub whole: bool,
    /// What is known to be wrong with the rule, where it concerns this model.
    pub wrong: Option<String>,
    /// Version or commit of the stack that the rule was read at.
    pub version: String,
    /// Whether no chosen rule of the stack is for the part: the plan then bears the stack's name, and holds
    /// the sizes of the part alone.
    pub uncovered: bool,
    /// Whether the rule is an emulation, which shows what a format computes and serves nobody.
    pub emulates: bool,
    /// Whether the rule is a dispatch by itself: it sends tokens and multiplies nothing.
    pub dispatch: bool,
}

/// A part that was not planned, by any rule or by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotJudged {
    /// The part.
    pub layer: LayerKind,
    /// The rule, where others may have planned the part.
    pub rule: Option<String>,
    /// Why, as a clause.
    pub why: String,
}

/// A model's plans under every rule asked for.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The model.
    pub model: Model,
    /// Ranks.
    pub parallel: Parallel,
    /// Data-parallel replicas.
    pub dp: u64,
    /// The dispatch that sends the tokens of its stack's rules.
    pub dispatch: Option<String>,
    /// Plans: by layer, current rules first, else in the order of the rule files; then the stacks
    /// that have no rule for it.
    pub plans: Vec<Surveyed>,
    /// TP degrees up to 64 that need no padding, per current rule of the routed layer.
    pub aligned: Vec<(String, Vec<u64>)>,
    /// What else could be done; empty when the query does not ask.
    pub advice: Advice,
    /// Parts without a plan, and rules that the ranks leave out of one: a clause each.
    pub not_judged: Vec<NotJudged>,
    /// Whether a rule named in the query does not run the model: it refuses, cannot represent it,
    /// or is wrong. Historical rules count only when named exactly.
    pub named_fails: bool,
}

impl Survey {
    /// TP degrees that need no padding under any current rule of the routed layer.
    pub fn aligned_by_all(&self) -> Vec<u64> {
        let Some(((_, first), rest)) = self.aligned.split_first() else {
            return Vec::new();
        };
        let common = |tp: &u64| rest.iter().all(|(_, list)| list.contains(tp));
        first.iter().copied().filter(common).collect()
    }
}

/// Why a model could not be surveyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// A rule that does not exist.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A backend that no rule has.
    #[error("no rule has the backend `{given}`{hint}; known: {known}")]
    Backend {
        /// What was asked for.
        given: String,
        /// The nearest one, as text to append.
        hint: String,
        /// All of them.
        known: String,
    },
    /// A pattern and a backend that exclude each other.
    #[error("no rule matches `{rule}` on the backend `{backend}`")]
    Disjoint {
        /// The pattern.
        rule: String,
        /// The backend.
        backend: String,
    },
    /// A pattern and an architecture that exclude each other.
    #[error("no rule that matches `{rule}` is for the architecture `{arch}`")]
    DisjointArch {
        /// The pattern.
        rule: String,
        /// The architecture.
        arch: String,
    },
    /// Rules that were asked for and could not be planned.
    #[error("no rule that matches `{rule}` can be planned: {why}")]
    Unplanned {
        /// The pattern.
        rule: String,
        /// Why.
        why: String,
    },
    /// An architecture that no rule names.
    #[error("no rule is for the architecture `{given}`; known: {known}")]
    Arch {
        /// What was asked for.
        given: String,
        /// All of them.
        known: String,
    },
    /// A version of a stack that no rule has, or of none when the rules have several.
    #[error("--stack-version {given}: {why}")]
    Version {
        /// What was asked for.
        given: String,
        /// What is wrong with it.
        why: String,
    },
    /// A part that the model does not have.
    #[error("{model} has no {layer} layer")]
    NoLayer {
        /// The model.
        model: String,
        /// The part.
        layer: LayerKind,
    },
    /// A layer that cannot be planned at all.
    #[error("{model}, {layer} layer, rule {rule}: {source}")]
    Plan {
        /// The model.
        model: String,
        /// The part.
        layer: LayerKind,
        /// The rule.
        rule: String,
        /// Why.
        source: PlanError,
    },
    /// Ranks that no rule could be asked about.
    #[error(transparent)]
    Ranks(PlanError),
    /// More ranks than are planned for.
    #[error(
        "{}: more ranks than padproof plans for (at most {RANKS_MAX})",
        match dp {
            1 => format!("tp={tp}"),
            _ => format!("dp={dp}: with tp={tp}"),
        }
    )]
    Replicas {
        /// Replicas.
        dp: u64,
        /// Ranks of one.
        tp: u64,
    },
}

/// Plans every layer of the model under every rule that the query and the layer's format choose.
///
/// # Errors
/// Names that do not exist, and sizes that cannot be planned under any rule.
pub fn survey<'q>(
    model: &Model,
    rules: &'q Rules,
    query: &Query<'q>,
) -> Result<Survey, SurveyError> {
    survey_replicas(model, rules, query, 1)
}

/// As [`survey`], of `dp` data-parallel replicas: what they do to the experts differs by stack.
/// Rules whose ranks the groups of experts do not divide are left out, and said to be.
///
/// # Errors
/// As [`survey`], and rules asked for of which none can be planned.
pub fn survey_replicas<'q>(
    model: &Model,
    rules: &'q Rules,
    query: &Query<'q>,
    dp: u64,
) -> Result<Survey, SurveyError> {
    if query
        .parallel
        .tp
        .checked_mul(dp)
        .is_none_or(|n| n > RANKS_MAX)
    {
        return Err(SurveyError::Replicas {
            dp,
            tp: query.parallel.tp,
        });
    }
    let parts = Parts::new(model, rules, *query, dp)?;
    let asked: Vec<usize> = (0..parts.all.len()).filter(|&at| parts.asked(at)).collect();
    if let (Some(layer), true) = (query.layer, asked.is_empty()) {
        return Err(SurveyError::NoLayer {
            model: model.name.clone(),
            layer,
        });
    }
    let mut survey = Survey {
        model: model.clone(),
        parallel: query.parallel,
        dp,
        dispatch: rules.sender().map(str::to_owned),
        plans: Vec::new(),
        aligned: Vec::new(),
        advice: Advice::default(),
        not_judged: Vec::new(),
        named_fails: false,
    };
    // Only rules that the ranks leave out make an error; that a rule is for other checkpoints is an answer.
    let mut left: Vec<NotJudged> = Vec::new();
    for at in asked {
        let before = survey.not_judged.len();
        survey.judge(&parts, at)?;
        left.extend_from_slice(&survey.not_judged[before..]);
        survey.not_judged.extend(parts.of_other_methods(at));
        survey.leave_open(&parts, at)?;
    }
    let planned = survey.plans.iter().any(|one| !one.uncovered);
    if let (false, Some(rule), Some(first)) = (planned, query.rule, left.first()) {
        return Err(SurveyError::Unplanned {
            rule: rule.to_owned(),
            why: first.why.clone(),
        });
    }
    if query.advice {
        survey.advice = Advice::of(&parts, &survey.plans);
    }
    // A backend or rules that were asked for and that take nothing do not run the model either.
    survey.named_fails |= (query.backend.is_some() || query.rule.is_some()) && !planned;
    Ok(survey)
}

impl Survey {
    /// Plans one part under every rule that was chosen for it.
    fn judge(&mut self, parts: &Parts<'_>, at: usize) -> Result<(), SurveyError> {
        let (query, part) = (&parts.query, &parts.all[at]);
        for (rule, _) in parts.picked(at) {
            let counts = query
                .rule
                .is_some_and(|p| rule.status == Status::Current || p == rule.id);
            let Some(plan) = parts.plan(rule, at, query.parallel) else {
                self.not_judged
                    .push(left_out(part.kind, rule, query.parallel, parts.dp));
                continue;
            };
            let plan = plan.map_err(|source| plan_error(parts.model, part.kind, rule, source))?;
            self.named_fails |= counts && fails(plan.fit);
            if query.advice
                && parts.dp == 1
                && part.kind == LayerKind::Routed
                && rule.status == Status::Current
                && (!rule.kernel || parts.kernels_alone())
            {
                let on = on_arch(rule, query.arch);
                let list = aligned_tp(part, query.parallel.ep, &on, query.env);
                self.aligned.push((rule.id.clone(), list));
            }
            self.plans.push(Surveyed {
                status: rule.status,
                stack: rule.stack.clone(),
                auto: parts.is_auto(rule, at),
                whole: parts.is_whole(rule, at),
                wrong: known_wrong(rule, &plan),
                version: rule.version.clone(),
                uncovered: false,
                emulates: rule.emulates(),
                dispatch: rule.dispatch,
                plan,
            });
        }
        Ok(())
    }

    /// Says of one part which stacks have no rule for it.
    fn leave_open(&mut self, parts: &Parts<'_>, at: usize) -> Result<(), SurveyError> {
        let part = &parts.all[at];
        let silent = parts.silent(at);
        let why = match (silent.as_slice(), parts.picked(at).is_empty()) {
            ([], _) => return Ok(()),
            ([first, ..], true) if silent.iter().all(|one| one.why == first.why) => {
                first.why.clone()
            }
            (some, _) => {
                let stacks: Vec<&str> = some.iter().map(|one| one.stack.as_str()).collect();
                let stacks = stacks.join(", ");
                format!("no rule of {stacks} covers the {} layer", part.kind)
            }
        };
        self.not_judged.push(NotJudged {
            layer: part.kind,
            rule: None,
            why,
        });
        for Silent { stack, why } in silent {
            let replicas = parts.rules.replicas(&stack);
            // Groups that do not divide the ranks are no reason to say nothing.
            let ranks = replicated(replicas, part.kind, parts.query.parallel, parts.dp);
            let ranks = ranks.unwrap_or(Parallel {
                tp: parts.query.parallel.tp,
                ep: 1,
            });
            let plan = uncovered(part, ranks, &stack, why).map_err(|source| SurveyError::Plan {
                model: parts.model.name.clone(),
                layer: part.kind,
                rule: stack.clone(),
                source,
            })?;
            self.plans.push(Surveyed {
                status: Status::Current,
                stack,
                auto: false,
                whole: false,
                wrong: None,
                version: String::new(),
                uncovered: true,
                emulates: false,
                dispatch: false,
                plan,
            });
        }
        Ok(())
    }
}

/// A rule whose ranks do not divide into the groups of experts asked for.
fn left_out(layer: LayerKind, rule: &Rule, asked: Parallel, dp: u64) -> NotJudged {
    let (stack, ep) = (&rule.stack, asked.ep);
    let tp = asked.tp;
    NotJudged {
        layer,
        rule: Some(rule.id.clone()),
        why: format!(
            "{ep} expert-parallel groups do not divide the ranks that share the experts of {stack} at tp {tp}, dp {dp}"
        ),
    }
}

/// The sentence for a layer that cannot be planned at all.
pub(super) fn plan_error(
    model: &Model,
    layer: LayerKind,
    rule: &Rule,
    source: PlanError,
) -> SurveyError {
    match source {
        // It is none of the rule's doing.
        PlanError::Invalid {
            key: "tp" | "ep", ..
        } => SurveyError::Ranks(source),
        source => SurveyError::Plan {
            model: model.name.clone(),
            layer,
            rule: rule.id.clone(),
            source,
        },
    }
}

/// What is known to be wrong with a rule. Where the planner can tell the fault by the model's
/// sizes, only if it finds it there.
fn known_wrong(rule: &Rule, plan: &Plan) -> Option<String> {
    let told = rule.place == Place::Tail
        || rule.sizes != Sizes::Consistent
        || rule.valid.iter().any(|valid| valid.doubled)
        || rule
            .refuse
            .iter()
            .any(|refusal| refusal.verdict == Verdict::Wrong);
    let found = plan.violations.iter().any(|v| v.effect == Effect::Wrong);
    rule.wrong.clone().filter(|_| found || !told)
}

const fn fails(fit: Fit) -> bool {
    matches!(fit, Fit::Refused | Fit::Unrepresentable | Fit::Wrong)
}

//! Chooses the rules that a query plans for one part of a model.
//!
//! It must not plan. Layer 9.

use super::survey::{Query, StackVersion, SurveyError};
use crate::model::Model;
use crate::plan::LayerSpec;
use crate::rule::{Held, Release, Rule, Rules, Status, family, same_arch};
use crate::terms::{WeightFormat, did_you_mean};
use std::borrow::Cow;

/// A rule, and the version it was asked about where nothing was read of that.
pub(super) type Candidate<'q> = (&'q Rule, Option<&'q str>);

/// The rules that names, backend and architecture leave, current ones first.
pub(super) fn candidates<'q>(
    rules: &'q Rules,
    query: &Query<'_>,
) -> Result<Vec<&'q Rule>, SurveyError> {
    if let Some(given) = query.backend {
        let known = distinct(rules.iter().map(|r| r.backend.as_str()));
        if !known.contains(&given) {
            return Err(SurveyError::Backend {
                given: given.to_owned(),
                hint: did_you_mean(given, &known),
                known: known.join(", "),
            });
        }
    }
    if let Some(given) = query.arch {
        let all = rules.iter().flat_map(|r| r.arch.iter());
        let known = distinct(all.flat_map(|arch| [arch.as_str(), family(arch)]));
        if !known.contains(&given) {
            return Err(SurveyError::Arch {
                given: given.to_owned(),
                known: known.join(", "),
            });
        }
    }
    let mut found = match query.rule {
        Some(pattern) => rules.matching(pattern)?,
        None => rules.iter().collect(),
    };
    found.retain(|rule| query.backend.is_none_or(|b| b == rule.backend));
    if let (true, Some(rule), Some(backend)) = (found.is_empty(), query.rule, query.backend) {
        return Err(SurveyError::Disjoint {
            rule: rule.to_owned(),
            backend: backend.to_owned(),
        });
    }
    let on = |rule: &Rule, arch: &str| {
        rule.arch.is_empty() || rule.arch.iter().any(|a| same_arch(a, arch))
    };
    found.retain(|rule| query.arch.is_none_or(|arch| on(rule, arch)));
    if let (true, Some(rule), Some(arch)) = (found.is_empty(), query.rule, query.arch) {
        return Err(SurveyError::DisjointArch {
            rule: rule.to_owned(),
            arch: arch.to_owned(),
        });
    }
    // What a later change replaced is for those who ask for it.
    let replaced = |rule: &Rule| {
        let by = |later: &Rule| {
            later.status == Status::Current
                && (&later.stack, &later.backend) == (&rule.stack, &rule.backend)
                && later.since == rule.until
                && later.formats.iter().any(|f| rule.formats.contains(f))
        };
        rule.until.is_some() && rules.iter().any(by)
    };
    found.retain(|rule| {
        let newest = rule.status == Status::Current && !replaced(rule);
        let asked = |version: &StackVersion| match &version.stack {
            Some(stack) => *stack == rule.stack,
            None => true,
        };
        query.all || newest || query.versions.iter().any(asked)
    });
    found.sort_by_key(|rule| rule.status);
    Ok(found)
}

fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known: Vec<&str> = words.collect();
    known.sort_unstable();
    known.dedup();
    known
}

/// Refuses a stack that no rule is of, and a version that is none: neither a release number or a
/// commit, nor one that a rule of the stack names.
fn read(rules: &Rules, asked: &StackVersion) -> Result<(), SurveyError> {
    let (stack, version) = (asked.stack.as_deref(), asked.version.as_str());
    let refused = |why| {
        let stack = stack.map_or(String::new(), |s| format!("{s}="));
        let given = format!("{stack}{version}");
        Err(SurveyError::Version { given, why })
    };
    let stacks = distinct(rules.iter().map(|r| r.stack.as_str()));
    if let Some(stack) = stack.filter(|stack| !stacks.contains(stack)) {
        let (hint, known) = (did_you_mean(stack, &stacks), stacks.join(", "));
        return refused(format!("no rule is of `{stack}`{hint}; known: {known}"));
    }
    let of_stack = |rule: &&Rule| stack.is_none_or(|stack| stack == rule.stack);
    let named = rules
        .iter()
        .filter(of_stack)
        .any(|rule| rule.names(version));
    if named || Release::parse(version).is_some() || is_commit(version) {
        return Ok(());
    }
    if stack.is_none() && stacks.contains(&version) {
        return refused(format!(
            "that is a stack: say {version}=VERSION, such as {version}={}",
            rules
                .iter()
                .find(|rule| rule.stack == version && rule.status == Status::Current)
                .map_or("1.0", |rule| rule.version.as_str())
        ));
    }
    let read = rules.iter().filter(of_stack);
    // What was measured and not released has a sentence for a version.
    let read = read.filter(|rule| !rule.version.contains(' '));
    let read = read.filter(|rule| rule.status == Status::Current);
    let read = distinct(read.map(|rule| rule.version.as_str()));
    refused(format!(
        "`{version}` is no release number and no commit; read: {}",
        read.join(", ")
    ))
}

/// Hexadecimal digits, as many as commits are told apart by.
fn is_commit(version: &str) -> bool {
    let digits = version.strip_prefix("commit ").unwrap_or(version);
    (7..=40).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The rules that hold at the versions asked for, or of which that is not known.
pub(super) fn at_versions<'q>(
    rules: &Rules,
    found: Vec<&'q Rule>,
    query: &Query<'q>,
) -> Result<Vec<Candidate<'q>>, SurveyError> {
    query.versions.iter().try_for_each(|one| read(rules, one))?;
    let stacks = distinct(found.iter().map(|r| r.stack.as_str()));
    let mut asked: Vec<(&str, &str)> = Vec::new();
    for one in query.versions {
        let stack = match (one.stack.as_deref(), stacks.as_slice()) {
            (Some(stack), all) => all.contains(&stack).then_some(stack),
            (None, [only]) => Some(*only),
            (None, _) => None,
        };
        let twice = stack.is_some_and(|stack| asked.iter().any(|(known, _)| *known == stack));
        if let (Some(stack), false) = (stack, twice) {
            asked.push((stack, &one.version));
            continue;
        }
        let why = match (one.stack.as_deref(), stacks.as_slice()) {
            _ if twice => "a version of this stack was asked for already".to_owned(),
            (Some(stack), all) => {
                format!("no chosen rule is of {stack}{}", did_you_mean(stack, all))
            }
            (None, all) => format!("say of which stack, as STACK=VERSION: {}", all.join(", ")),
        };
        let stack = one
            .stack
            .as_ref()
            .map_or(String::new(), |s| format!("{s}="));
        return Err(SurveyError::Version {
            given: format!("{stack}{}", one.version),
            why,
        });
    }
    let any = !found.is_empty();
    // The one rule that is asked about is told of, whatever became of it.
    let alone = query.rule.is_some() && found.len() == 1;
    let kept = found.into_iter().filter_map(|rule| {
        let shipped = query.all || rule.status == Status::Current;
        let Some(&(_, version)) = asked.iter().find(|(stack, _)| *stack == rule.stack) else {
            return shipped.then_some((rule, None));
        };
        match rule.held_at(version) {
            // What code should do, no version does.
            Held::Yes if rule.status != Status::Proposed || alone => Some((rule, None)),
            Held::Unread if rule.status == Status::Current || alone => Some((rule, Some(version))),
            Held::Yes | Held::No | Held::Unread => None,
        }
    });
    let kept: Vec<Candidate<'q>> = kept.collect();
    if let (true, true, Some(rule), [(stack, version), ..]) =
        (any, kept.is_empty(), query.rule, asked.as_slice())
    {
        return Err(SurveyError::Version {
            given: format!("{stack}={version}"),
            why: format!("no rule that matches `{rule}` held then"),
        });
    }
    Ok(kept)
}

/// The rule as it is on one architecture.
pub fn on_arch<'r>(rule: &'r Rule, arch: Option<&str>) -> Cow<'r, Rule> {
    match arch {
        // A rule for two of a family's architectures is not for the whole family.
        Some(arch) if !rule.arch.iter().any(|a| family(a) == arch) && rule.arch != [arch] => {
            let mut narrowed = rule.clone();
            narrowed.arch = vec![arch.to_owned()];
            Cow::Owned(narrowed)
        }
        _ => Cow::Borrowed(rule),
    }
}

/// Whether a rule is for checkpoints of the model's method.
pub(super) fn of_method(rule: &Rule, model: &Model) -> bool {
    let method = model.quant.method.replace('_', "-");
    let mut methods = rule.methods.iter().map(|m| m.replace('_', "-"));
    // ModelOpt spells one method by what it quantises to as well: `modelopt_fp4`.
    let same =
        |named: &str| named == method || named == "modelopt" && method.starts_with("modelopt-");
    method == "none" || rule.methods.is_empty() || methods.any(|m| same(&m))
}

/// What a rule's environment variable must be and is not, as a clause.
fn switch(rule: &Rule, query: &Query<'_>) -> Option<String> {
    let set = |name: &String| query.env.contains(&name.as_str());
    let on = rule.when.env.as_ref().filter(|name| !set(name));
    let off = rule.when.env_not.as_ref().filter(|name| set(name));
    let on = on.map(|name| format!("{name} set"));
    on.or_else(|| off.map(|name| format!("{name} not set")))
}

/// Why no candidate is for a part, as a clause.
pub(super) fn uncovered(
    candidates: &[Candidate<'_>],
    part: &LayerSpec,
    model: &Model,
    query: &Query<'_>,
) -> String {
    let narrowed = query.rule.is_some()
        || query.backend.is_some()
        || query.arch.is_some()
        || !query.versions.is_empty();
    let which = match (narrowed, query.all) {
        (true, _) => "chosen",
        (false, true) => "loaded",
        (false, false) => "current",
    };
    let (kind, format) = (part.kind, part.weight);
    let mut left: Vec<&Rule> = candidates.iter().map(|(rule, _)| *rule).collect();
    left.retain(|rule| rule.layers.contains(&kind.follows()));
    if left.is_empty() {
        return format!("no {which} rule covers the {kind} layer");
    }
    let others: Vec<&str> = WeightFormat::ALL
        .iter()
        .filter(|other| left.iter().any(|rule| rule.formats.contains(other)))
        .map(|other| other.name())
        .collect();
    left.retain(|rule| rule.formats.contains(&format));
    if left.is_empty() {
        let all = format!("no {which} rule takes {format} in the {kind} layer");
        return match query.rule {
            Some(_) => format!("{all}: they are for {}", others.join(", ")),
            None => all,
        };
    }
    if !left.iter().any(|rule| of_method(rule, model)) {
        let method = &model.quant.method;
        return format!("no {which} rule takes {format} of `{method}` in the {kind} layer");
    }
    left.retain(|rule| of_method(rule, model));
    let switches: Option<Vec<String>> = left.iter().map(|rule| switch(rule, query)).collect();
    if let Some(mut switches) = switches {
        switches.sort();
        switches.dedup();
        let switches = switches.join(" or ");
        return format!(
            "the {which} rules that take {format} in the {kind} layer are for {switches}"
        );
    }
    format!(
        "the {which} rules that take {format} are for other ranks or layers than the {kind} one"
    )
}

//! Writes advice: degrees without padding, and ways around a plan with their cost.
//!
//! It must not decide anything. Layer 10.

use super::grid::{paragraph, sentence};
use super::words::{self, bytes, listed, percent, plural};
use crate::plan::{Fit, Parallel};
use crate::run::{Beside, Changed, Cost, Instead, RuleAdvice, Survey, Way};
use crate::terms::LayerKind;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Ways around that are written out, once for rules that share them; the other rules are only named.
const SHOWN: usize = 4;

/// Numbers, or that there are none.
pub(super) fn degrees(list: &[u64]) -> String {
    if list.is_empty() {
        return "none up to 64".to_owned();
    }
    let words: Vec<String> = list.iter().map(u64::to_string).collect();
    words.join(", ")
}

/// Degrees that are in the list of every rule advised about.
pub(super) fn common(survey: &Survey) -> Vec<u64> {
    let rules: Vec<&RuleAdvice> = survey.advice.rules.iter().collect();
    in_all(&rules, |one| &one.aligned)
}

fn in_all(rules: &[&RuleAdvice], list: fn(&RuleAdvice) -> &[u64]) -> Vec<u64> {
    let Some((first, rest)) = rules.split_first() else {
        return Vec::new();
    };
    let all = |tp: &u64| rest.iter().all(|rule| list(rule).contains(tp));
    list(first).iter().copied().filter(all).collect()
}

/// Rules by the parts that are open under them, those without any first.
fn by_open(survey: &Survey) -> Vec<(&[LayerKind], Vec<&RuleAdvice>)> {
    let mut all: Vec<(&[LayerKind], Vec<&RuleAdvice>)> = Vec::new();
    for one in &survey.advice.rules {
        match all.iter_mut().find(|(open, _)| *open == one.open) {
            Some((_, rules)) => rules.push(one),
            None => all.push((&one.open, vec![one])),
        }
    }
    all.sort_by_key(|(open, _)| open.len());
    all
}

/// `shared and dense layers`.
pub(super) fn layers(kinds: &[LayerKind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    words::layers(&names)
}

/// Under how many rules there is no degree to name, for parts that no rule is for, and the degrees of
/// the other parts; nothing where all parts are judged.
pub(super) fn open_degrees(survey: &Survey) -> Vec<String> {
    let open = by_open(survey)
        .into_iter()
        .filter(|(open, _)| !open.is_empty());
    let text = |(open, rules): (&[LayerKind], Vec<&RuleAdvice>)| {
        let names: Vec<String> = rules.iter().map(|one| named(survey, one)).collect();
        let known = degrees(&in_all(&rules, |one| &one.aligned_known));
        format!(
            "unknown for the {} under {}; of the other parts: {known}",
            layers(open),
            some(&names)
        )
    };
    open.map(text).collect()
}

/// What the degrees were held against, and what not, a sentence each.
pub(super) fn held_against(survey: &Survey) -> Vec<String> {
    let advice = &survey.advice;
    let known = (!advice.limits.is_empty()).then(|| format!("for {}", advice.limits.join(", ")));
    let unknown = (!advice.unchecked.is_empty()).then(|| advice.unchecked.join("; "));
    known.into_iter().chain(unknown).collect()
}

/// Writes the advice for people.
pub(super) fn human(survey: &Survey, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    if survey.advice.rules.is_empty() {
        return Ok(());
    }
    let spread = match survey.parallel {
        Parallel { ep: 1, .. } => String::new(),
        Parallel { tp, ep } if ep >= tp => ", with whole experts on every rank".to_owned(),
        Parallel { ep, .. } => format!(", at ep {ep} or as many groups as divide it"),
    };
    let groups = by_open(survey).into_iter().flat_map(|(open, rules)| {
        let (alone, all): (Vec<_>, Vec<_>) = rules.into_iter().partition(|one| one.alone);
        [
            (open, all, "all parts"),
            (open, alone, "the routed experts"),
        ]
    });
    for (open, rules, what) in groups.filter(|(_, rules, _)| !rules.is_empty()) {
        let head = match open {
            [] => format!("tp without padding, of {what}{spread}"),
            open => format!(
                "tp without padding is unknown for the {}; of the other parts{spread}",
                layers(open)
            ),
        };
        writeln!(out)?;
        paragraph(&head, width, out)?;
        for text in lists(survey, &rules) {
            for line in sentence(&text, width) {
                writeln!(out, "{line}")?;
            }
        }
    }
    for text in held_against(survey) {
        for line in sentence(&text, width) {
            writeln!(out, "{line}")?;
        }
    }
    let (shown, more) = around(survey);
    for block in shown {
        let (tp, ep) = (survey.parallel.tp, survey.parallel.ep);
        let head = format!(
            "instead of {} at tp {tp}, ep {ep} ({})",
            some(&block.rules),
            block.told
        );
        writeln!(out)?;
        paragraph(&head, width, out)?;
        for text in block.ways {
            for line in sentence(&text, width) {
                writeln!(out, "{line}")?;
            }
        }
    }
    if !more.is_empty() {
        let text = format!(
            "ways around are there too, with --rule, for {}",
            some(&more)
        );
        writeln!(out)?;
        paragraph(&text, width, out)?;
    }
    Ok(())
}

/// The degrees of rules, those with the same list in one text, the longest list first.
fn lists(survey: &Survey, rules: &[&RuleAdvice]) -> Vec<String> {
    let mut lists: Vec<(&[u64], Vec<String>)> = Vec::new();
    for one in rules {
        let name = named(survey, one);
        match lists
            .iter_mut()
            .find(|(list, _)| *list == one.aligned_known)
        {
            Some((_, rules)) => rules.push(name),
            None => lists.push((&one.aligned_known, vec![name])),
        }
    }
    lists.sort_by_key(|(list, _)| std::cmp::Reverse(list.len()));
    let every = in_all(rules, |one| &one.aligned_known);
    let several = lists.len() > 1 && !every.is_empty();
    let line =
        |(list, names): (&[u64], Vec<String>)| format!("{}: {}", degrees(list), some(&names));
    let texts = lists.into_iter().map(line);
    let all = several.then(|| format!("{}: every one of these", degrees(&every)));
    texts.chain(all).collect()
}

/// Names that a line holds; of more it says how many.
const NAMED: usize = 3;

/// The first names, and how many there are besides.
pub(super) fn some(names: &[String]) -> String {
    match names.split_at_checked(NAMED) {
        Some((first, more)) if more.len() > 1 => {
            format!("{} and {} more", first.join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

/// A rule, with the format where layers are stored in several.
pub(super) fn named(survey: &Survey, one: &RuleAdvice) -> String {
    match survey.model.quant.others.is_empty() {
        true => one.rule.clone(),
        false => format!(
            "{} ({}, {})",
            one.rule,
            one.format,
            plural(one.layers, "layer")
        ),
    }
}

/// Rules with the same ways around.
struct Block {
    /// The verdict, and what it takes.
    told: String,
    rules: Vec<String>,
    ways: Vec<String>,
}

/// Ways around: those that are written out, those of the backends that stacks take by themselves
/// first; and the rules of the others.
fn around(survey: &Survey) -> (Vec<Block>, Vec<String>) {
    let auto = |one: &&RuleAdvice| {
        let mut plans = survey.plans.iter();
        plans.any(|p| p.auto && p.plan.rule == one.rule)
    };
    let rules = survey.advice.rules.iter();
    let mut rules: Vec<&RuleAdvice> = rules.filter(|one| !one.instead.is_empty()).collect();
    rules.sort_by_key(|one| !auto(one));
    let mut blocks: Vec<Block> = Vec::new();
    for one in rules {
        let (name, ways) = (named(survey, one), ways(one));
        let told = told(one);
        let same = |block: &&mut Block| block.told == told && block.ways == ways;
        match blocks.iter_mut().find(same) {
            Some(block) => block.rules.push(name),
            None => blocks.push(Block {
                told,
                rules: vec![name],
                ways,
            }),
        }
    }
    let more = blocks.split_off(SHOWN.min(blocks.len()));
    let more = more.into_iter().flat_map(|block| block.rules).collect();
    (blocks, more)
}

/// The verdict of a rule's plan, of the parts beside it that do not run or are open, and its memory.
pub(super) fn told(one: &RuleAdvice) -> String {
    let mut words = vec![one.fit.name().to_owned()];
    words.extend(
        one.parts
            .iter()
            .filter(|part| part.verdict >= Fit::Refused)
            .map(beside),
    );
    if !one.open.is_empty() {
        words.push(format!("{} unknown", layers(&one.open)));
    }
    // What does not start takes none.
    if one.verdict < Fit::Refused {
        words.push(format!("{} of experts a rank", bytes(one.cost.rank_bytes)));
        if one.cost.extra_bytes > 0 {
            words.push(format!(
                "{} more memory in all",
                bytes(one.cost.extra_bytes)
            ));
        }
        if let Some(all) = together(&one.parts, one.all_parts, one.cost.extra_bytes) {
            return format!("{}; {all}", words.join(", "));
        }
    }
    words.join(", ")
}

/// What routed experts and the parts beside them cost together, where there are some.
fn together(parts: &[Beside], all: Option<Cost>, experts: u64) -> Option<String> {
    let all = all.filter(|_| !parts.is_empty())?;
    let mut kinds: Vec<LayerKind> = Vec::new();
    for part in parts {
        if !kinds.contains(&part.layer) {
            kinds.push(part.layer);
        }
    }
    let rank = bytes(all.rank_bytes);
    let mut text = format!("with the {} {rank} a rank", layers(&kinds));
    let arithmetic = all.extra_arithmetic();
    if arithmetic > 0 {
        text.push_str(&format!(", {} more arithmetic", percent(arithmetic)));
    }
    if all.extra_bytes > experts {
        text.push_str(&format!(", {} more memory in all", bytes(all.extra_bytes)));
    }
    Some(text)
}

/// `shared refused 64`.
fn beside(part: &Beside) -> String {
    format!("{} {} {}", part.layer, part.verdict.name(), part.width)
}

/// A rule's ways around, a line each, the cheapest padded degree last.
pub(super) fn ways(one: &RuleAdvice) -> Vec<String> {
    let cheapest = one.cheapest.as_ref();
    let cheapest =
        cheapest.map(|way| format!("tp {}, which pads least above tp 1: {}", way.tp, cost(way)));
    let lines = one.instead.iter().map(|instead| {
        let line = way(instead);
        let pads = one.fit == Fit::Slow && instead.verdict == Fit::Fits;
        match instead.cost.extra_arithmetic() {
            more if pads && more > 0 => format!(
                "{line}; not worth it while the slow path takes less than {} longer",
                percent(more)
            ),
            _ => line,
        }
    });
    lines.chain(cheapest).collect()
}

fn way(way: &Instead) -> String {
    let size = way.size.unwrap_or(way.width_padded);
    let what = match way.way {
        Way::Tp if way.ep > 1 => format!("tp {}, ep {}", way.tp, way.ep),
        Way::Tp => format!("tp {}", way.tp),
        Way::Ep if way.beside => format!("ep {} (shared and dense parts stay cut by tp)", way.ep),
        Way::Replicate => format!(
            "ep {}, shared experts of {size} kept whole on every rank instead of cut",
            way.ep
        ),
        Way::Ep => format!("ep {}", way.ep),
        Way::Backend => format!("{}{}", way.rule, open(way)),
        Way::FinerScales => format!(
            "scales repeated on a grid of {}, without loss",
            sizes(way, size)
        ),
        Way::Requantise => format!(
            "quantised again after the split, with loss, {}",
            instead_of(way)
        ),
        Way::PadOffline => format!(
            "checkpoint padded to {} before it is served{}, {}",
            sizes(way, size),
            asked(way),
            instead_of(way)
        ),
    };
    format!("{what}: {}", cost(way))
}

/// ` (padproof pad --tp 8 --align 128)`, where that makes it.
fn asked(way: &Instead) -> String {
    way.pad.map_or(String::new(), |pad| {
        format!(" (padproof pad --tp {} --align {})", pad.tp, pad.align)
    })
}

/// What the source of an advised rule leaves open.
fn open(way: &Instead) -> String {
    let unread: Vec<&str> = way.unread.iter().map(|one| one.meaning()).collect();
    match unread.as_slice() {
        [] => String::new(),
        all => format!(" (its source leaves open: {})", all.join(", ")),
    }
}

/// The sizes that a way is about: one number where only routed experts change, else of which part
/// each is.
fn sizes(way: &Instead, size: u64) -> String {
    each(&way.changed, size.to_string(), |one| one.size.to_string())
}

/// The width that a rank gets for the one it has.
fn instead_of(way: &Instead) -> String {
    let told = |one: &Changed| format!("{} a rank instead of {}", one.width_padded, one.width);
    let own = format!("{} a rank instead of {}", way.width_padded, way.width);
    each(&way.changed, own, told)
}

/// What is told of changed parts, alike ones together; of routed experts alone without their name.
fn each(changed: &[Changed], own: String, told: impl Fn(&Changed) -> String) -> String {
    let mut alike: Vec<(String, Vec<LayerKind>)> = Vec::new();
    for one in changed {
        let text = told(one);
        match alike.iter_mut().find(|(known, _)| *known == text) {
            Some((_, kinds)) if kinds.contains(&one.layer) => {}
            Some((_, kinds)) => kinds.push(one.layer),
            None => alike.push((text, vec![one.layer])),
        }
    }
    match alike.as_slice() {
        [] => own,
        [(text, kinds)] if *kinds == [LayerKind::Routed] => text.clone(),
        some => {
            let words = some.iter().map(|(text, kinds)| {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                format!("{text} ({})", listed(&names))
            });
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

fn cost(way: &Instead) -> String {
    let mut text = way.verdict.name().to_owned();
    // There the width is the checkpoint's own, and no padding of the rule's.
    let own = matches!(way.way, Way::PadOffline | Way::Requantise);
    if !own {
        text.push_str(&format!(" {}", way.width));
    }
    if !own && way.width != way.width_padded {
        text.push_str(&format!(" -> {}", way.width_padded));
    }
    let arithmetic = way.cost.extra_arithmetic();
    if arithmetic > 0 {
        text.push_str(&format!(", {} more arithmetic", percent(arithmetic)));
    }
    if way.told {
        text.push_str(", the kernel is told the padding");
    }
    let extra = way.cost.extra_bytes;
    if extra > 0 {
        text.push_str(&format!(", {} more memory in all", bytes(extra)));
    }
    let held = match way.way {
        Way::Replicate => "experts, shared ones too,",
        _ => "experts",
    };
    text.push_str(&format!(
        ", {} of {held} a rank",
        bytes(way.cost.rank_bytes)
    ));
    let all = together(&way.parts, way.all_parts, extra);
    text.extend(all.map(|all| format!("; {all}")));
    if !way.open.is_empty() {
        let open = layers(&way.open);
        text.push_str(&format!("; {open} unknown, no rule of its stack"));
    }
    if !way.still.is_empty() {
        let still: Vec<String> = way.still.iter().map(beside).collect();
        text.push_str(&format!("; still {}", still.join(", ")));
    }
    text
}

/// The advice for programs, beside the older fields.
pub(super) fn rules_json(survey: &Survey) -> Vec<Value> {
    let rule = |rule: &RuleAdvice| {
        json!({
            "rule": rule.rule,
            "format": rule.format,
            "layers": rule.layers,
            "verdict": rule.verdict,
            "verdict_of_experts": rule.fit,
            "parts": rule.parts,
            "unknown_parts": rule.open,
            "extra_bytes": rule.cost.extra_bytes,
            "rank_bytes": rule.cost.rank_bytes,
            "all_parts": rule.all_parts,
            "aligned_tp": rule.aligned,
            "aligned_tp_of_known_parts": rule.aligned_known,
            "cheapest": rule.cheapest,
            "instead": rule.instead,
        })
    };
    survey.advice.rules.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rules;
    use crate::run::{Query, survey};

    #[test]
    fn a_slow_path_is_weighed_against_padding() {
        let model = crate::model::load("GLM-4.7").unwrap();
        let query = Query {
            rule: Some("sglang.aiter.bf16"),
            advice: true,
            ..Query::of(Parallel { tp: 8, ep: 1 })
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let lines = ways(&found.advice.rules[0]);
        // 192 channels of a rank padded to 256.
        let weighed = |line: &&String| line.ends_with("less than 33.33% longer");
        assert_eq!(lines.iter().filter(weighed).count(), 1, "{lines:?}");
        assert!(
            lines
                .iter()
                .find(weighed)
                .is_some_and(|l| l.contains("checkpoint padded to 2048"))
        );
    }

    /// facts/reports.md B08: a shared expert of 512 stays cut by TP.
    #[test]
    fn degrees_under_every_rule_stand_in_each_list_above() {
        let mut model = crate::model::load("DeepSeek-V3").unwrap();
        model.shared = Some(512);
        let query = Query {
            rule: Some("sglang.triton.fp8-block"),
            advice: true,
            ..Query::of(Parallel { tp: 16, ep: 1 })
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        assert!(found.aligned_by_all().contains(&8));
        assert_eq!(common(&found), [1, 2, 4]);
    }
}

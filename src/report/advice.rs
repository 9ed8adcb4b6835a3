//! Writes advice: degrees without padding, and ways around a plan with their cost.
//!
//! It must not decide anything. Layer 10.

use super::grid::sentence;
use super::words::{bytes, percent};
use crate::run::{Instead, RuleAdvice, Survey, Way};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Rules whose ways around are written out; the others are only named.
const SHOWN: usize = 4;

/// Numbers, or that there are none.
pub(super) fn degrees(list: &[u64]) -> String {
    if list.is_empty() {
        return "none up to 64".to_owned();
    }
    let words: Vec<String> = list.iter().map(u64::to_string).collect();
    words.join(", ")
}

/// Degrees that need no padding under every rule advised about.
pub(super) fn common(survey: &Survey) -> Vec<u64> {
    let usable = &survey.advice.usable;
    let aligned = survey.aligned_by_all().into_iter();
    aligned.filter(|tp| usable.contains(tp)).collect()
}

/// Writes the advice for people.
pub(super) fn human(survey: &Survey, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let advice = &survey.advice;
    if advice.rules.is_empty() {
        return Ok(());
    }
    writeln!(out, "\ntp without padding, routed experts")?;
    let lists = advice
        .rules
        .iter()
        .map(|one| (one.rule.as_str(), one.aligned.clone()));
    for (name, list) in lists.chain([("every rule above", common(survey))]) {
        for line in sentence(&format!("{name}: {}", degrees(&list)), width) {
            writeln!(out, "{line}")?;
        }
    }
    for line in sentence(&format!("for {}", advice.limits.join(", ")), width) {
        writeln!(out, "{line}")?;
    }
    if !advice.usable.contains(&survey.parallel.tp) {
        let tp = survey.parallel.tp;
        writeln!(out, "  tp {tp} itself does not divide them, or is above 64")?;
    }
    let mut around: Vec<&RuleAdvice> = advice
        .rules
        .iter()
        .filter(|r| !r.instead.is_empty())
        .collect();
    let auto = |one: &&RuleAdvice| {
        survey
            .plans
            .iter()
            .any(|p| p.auto && p.plan.rule == one.rule)
    };
    around.sort_by_key(|one| !auto(one));
    for one in around.iter().take(SHOWN) {
        writeln!(
            out,
            "\ninstead of {} at tp {}, ep {} ({})",
            one.rule,
            survey.parallel.tp,
            survey.parallel.ep,
            one.verdict.name()
        )?;
        for text in ways(one) {
            for line in sentence(&text, width) {
                writeln!(out, "{line}")?;
            }
        }
    }
    if let Some(more) = around.get(SHOWN..).filter(|more| !more.is_empty()) {
        let names: Vec<&str> = more.iter().map(|one| one.rule.as_str()).collect();
        let text = format!("with --rule also for: {}", names.join(", "));
        writeln!(out)?;
        for line in sentence(&text, width) {
            writeln!(out, "{}", line.trim_start())?;
        }
    }
    Ok(())
}

/// A rule's ways around, a line each, the cheapest padded degree last.
pub(super) fn ways(one: &RuleAdvice) -> Vec<String> {
    let cheapest = one.cheapest.as_ref();
    let cheapest = cheapest.map(|way| format!("tp {}, which pads least: {}", way.tp, cost(way)));
    one.instead.iter().map(way).chain(cheapest).collect()
}

fn way(way: &Instead) -> String {
    let size = way.size.unwrap_or(way.width_padded);
    let what = match way.way {
        Way::Tp => format!("tp {}", way.tp),
        Way::Ep if way.beside => format!("ep {} (shared and dense parts stay cut by tp)", way.ep),
        Way::Ep => format!("ep {}", way.ep),
        Way::Backend => way.rule.clone(),
        Way::FinerScales => {
            format!("scales repeated on a grid of {size}, without loss, if the kernel takes it")
        }
        Way::Requantise => {
            format!(
                "quantised again after the split, with loss, each rank {}",
                way.width_padded
            )
        }
        Way::PadOffline => format!("checkpoint padded to {size} before it is served"),
    };
    format!("{what}: {}", cost(way))
}

fn cost(way: &Instead) -> String {
    let mut text = format!("{} {}", way.verdict.name(), way.width);
    if way.width != way.width_padded {
        text.push_str(&format!(" -> {}", way.width_padded));
    }
    if way.extra_arithmetic > 0 {
        text.push_str(&format!(
            ", {} more arithmetic",
            percent(way.extra_arithmetic)
        ));
    }
    if way.extra_bytes > 0 {
        text.push_str(&format!(", {} more memory in all", bytes(way.extra_bytes)));
    }
    text
}

/// The advice for programs, beside the older fields.
pub(super) fn rules_json(survey: &Survey) -> Vec<Value> {
    let one = |way: &Instead| {
        let mut value = json!(way);
        value["extra_arithmetic"] = json!(way.extra_arithmetic as f64 / 1e6);
        value
    };
    let rule = |rule: &RuleAdvice| {
        json!({
            "rule": rule.rule,
            "verdict": rule.verdict,
            "aligned_tp": rule.aligned,
            "cheapest": rule.cheapest.as_ref().map(one),
            "instead": rule.instead.iter().map(one).collect::<Vec<_>>(),
        })
    };
    survey.advice.rules.iter().map(rule).collect()
}

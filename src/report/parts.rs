//! Gives the JSON formats their common parts.
//!
//! It must not write anything. Layer 10.

use crate::property::Verdict;
use crate::run::{Coverage, Ended, Event, Finished, Group};
use serde_json::{Map, Value, json};

/// Version of the JSON formats; raised when a field changes its meaning.
pub(super) const SCHEMA: u32 = 1;

/// The verdict's word in JSON.
pub(super) const fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass(_) => "pass",
        Verdict::Fail(_) => "fail",
        Verdict::Skip(_) => "skip",
        Verdict::Vacuous(_) => "vacuous",
        Verdict::Broken(_) => "broken",
    }
}

/// Why a verdict is neither pass nor fail.
pub(super) fn reason(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Pass(_) | Verdict::Fail(_) => None,
        Verdict::Skip(reason) => Some(reason.to_string()),
        Verdict::Vacuous(reason) => Some(reason.reason().to_owned()),
        Verdict::Broken(why) => Some(why.clone()),
    }
}

/// One check as an object; what does not apply is left out.
pub(super) fn check(finished: &Finished) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    put("verdict", json!(verdict_word(&finished.verdict)));
    put("property", json!(finished.property));
    put("subject", json!(finished.subject));
    put("case", json!(finished.case));
    if let Some(name) = &finished.name {
        put("name", json!(name));
    }
    if let Some((file, line)) = &finished.place {
        put("file", json!(file));
        put("line", json!(line));
    }
    if let Some(reason) = reason(&finished.verdict) {
        put("reason", json!(reason));
    }
    if let Verdict::Pass(tier) = &finished.verdict {
        put("tier", json!(tier.name()));
    }
    if let Verdict::Fail(finding) = &finished.verdict {
        put("case", json!(finding.case));
        if finding.case != finished.case {
            put("from", json!(finished.case));
        }
        put("place", json!(finding.place));
        put("wanted", json!(finding.wanted));
        put("actual", json!(finding.actual));
        put("bound", json!(finding.bound));
        put("derivation", json!(finding.derivation));
        put("differing", json!(finding.differing));
        put("total", json!(finding.total));
        put("first", json!(finding.first));
        put("note", json!(finding.note));
    }
    if matches!(finished.verdict, Verdict::Fail(_) | Verdict::Broken(_)) {
        put("repro", json!(finished.repro()));
    }
    all
}

/// How a run ended, with everything that was counted; nothing of any other event.
pub(super) fn end(event: &Event<'_>) -> Map<String, Value> {
    let mut all = Map::new();
    let Event::RunFinished {
        counts,
        groups,
        coverage: covered,
        shortfalls,
        ended,
        resume,
        time,
    } = event
    else {
        return all;
    };
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    put("counts", json!(counts));
    put("properties", groups.iter().map(group).collect());
    put("coverage", coverage(covered));
    put("shortfalls", json!(shortfalls));
    put("ended", json!(ended_word(*ended)));
    put("resume", json!(resume));
    put("time", json!(time.as_secs_f64()));
    all
}

const fn ended_word(ended: Ended) -> &'static str {
    match ended {
        Ended::Whole => "whole",
        Ended::MaxFail => "max-fail",
        Ended::Interrupted => "interrupted",
    }
}

fn group(group: &Group) -> Value {
    json!({
        "property": group.property,
        "subject": group.subject,
        "verdict": group.kind().word().to_lowercase(),
        "counts": group.counts,
        "reason": group.reason(),
        "vacuous": vacuous(group),
        "skips": group.skips,
        "time": group.time.as_secs_f64(),
    })
}

/// How many verdicts were vacuous for each reason.
fn vacuous(group: &Group) -> Value {
    let counted = group.vacuous.iter();
    counted
        .map(|(reason, count)| (reason.reason().to_owned(), json!(count)))
        .collect::<Map<_, _>>()
        .into()
}

/// How many cases there were, and how many covered what.
fn coverage(coverage: &Coverage) -> Value {
    let mut all = Map::new();
    all.insert("cases".to_owned(), json!(coverage.cases()));
    for (name, hits) in coverage.iter() {
        all.insert(name.to_owned(), json!(hits));
    }
    Value::Object(all)
}

//! Spells numbers, plurals and what plans are called for people.
//!
//! It must not write anything. Layer 10.

use crate::model::Model;
use crate::plan::{Plan, Unit, Violation};
use crate::rule::{Grade, Status};
use crate::run::{Survey, Surveyed};
use crate::terms::LayerKind;
use std::time::Duration;

/// The part that a plan is of, with its format where routed experts have several.
pub(super) fn part(survey: &Survey, plan: &Plan) -> String {
    let several = plan.layer == LayerKind::Routed && !survey.model.quant.others.is_empty();
    match several {
        true => format!("{} {}", plan.layer, plan.weight),
        false => plan.layer.to_string(),
    }
}

/// A rule's id, with what a reader must know about it before anything else.
pub(super) fn label(one: &Surveyed) -> String {
    let mark = match (one.status, one.auto) {
        (Status::Historical, _) => " (historical)",
        (Status::Proposed, _) => " (proposed)",
        (Status::Current, true) => " (auto)",
        (Status::Current, false) => "",
    };
    let kernel = match (one.plan.kernel, one.plan.grade, one.status) {
        _ if one.dispatch => " (dispatch)",
        (true, ..) => " (kernel)",
        // What was read is better known.
        (false, Grade::Issue, Status::Current) => " (from an issue)",
        _ => "",
    };
    format!("{}{mark}{kernel}", one.plan.rule)
}

/// Code, axis and the number that was tested; a rule as a whole tests none.
pub(super) fn short(found: &Violation) -> String {
    if found.axis == "rule" && found.granule == 0 {
        return format!("{} rule", found.code);
    }
    if found.unit == Unit::Ranks && found.granule > 1 {
        return format!("{} {} of {} ranks", found.code, found.value, found.granule);
    }
    let granule = if found.granule > 1 {
        format!(" % {}", found.granule)
    } else {
        String::new()
    };
    format!(
        "{} {} {} {}{granule}",
        found.code,
        found.axis,
        found.value,
        found.unit.name()
    )
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn listed<W: AsRef<str>>(words: &[W]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// `shared layer`, `shared and dense layers`.
pub(super) fn layers<W: AsRef<str>>(names: &[W]) -> String {
    let s = if names.len() > 1 { "s" } else { "" };
    format!("{} layer{s}", listed(names))
}

/// `1 case`, `2 cases`, `5 184 checks`.
pub fn plural(count: u64, noun: &str) -> String {
    let many = match (count, noun.strip_suffix('y')) {
        (1, _) => noun.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{noun}s"),
    };
    format!("{} {many}", thousands(count))
}

/// Digits in groups of three, from 1 000 on.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Millionths as a percentage with two decimals.
pub(super) fn percent(millionths: u64) -> String {
    // Rounded half up: 15/961 is 1.56 %.
    let hundredths = millionths.saturating_add(50) / 100;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// Bytes in the largest unit that leaves a whole part, with one decimal.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number == u64::MAX {
        return "more than can be counted".to_owned();
    }
    if number < 1 << 10 {
        return format!("{number} bytes");
    }
    let mut scaled = number as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    format!("{scaled:.1} {unit}")
}

/// The model's facts, one phrase each.
pub(super) fn facts(model: &Model) -> Vec<String> {
    let gated = if model.gated() { "gated" } else { "not gated" };
    let mut all = vec![
        format!("hidden {}", model.hidden),
        format!("intermediate {}", model.intermediate),
        format!("experts {}", model.experts),
        format!("top-k {}", model.top_k),
        format!("{} ({gated})", model.activation),
        model.quant.format.to_string(),
    ];
    if model.zero_experts > 0 {
        all.insert(3, format!("identity experts {}", model.zero_experts));
    }
    let latent = Some(model.model_hidden).filter(|hidden| *hidden != model.hidden);
    let parts = [
        ("model hidden", latent),
        ("shared", model.shared),
        ("dense", model.dense),
    ];
    let there = parts
        .iter()
        .filter_map(|(name, size)| Some((name, (*size)?)));
    all.extend(there.map(|(name, size)| format!("{name} {size}")));
    all
}

/// What was asked: ranks, groups, replicas where there are several, and what sends tokens.
pub(super) fn asked(survey: &Survey) -> Vec<(&'static str, String)> {
    let (tp, ep) = (survey.parallel.tp, survey.parallel.ep);
    let mut all = vec![("tp", tp.to_string()), ("ep", ep.to_string())];
    if survey.dp > 1 {
        all.push(("dp", survey.dp.to_string()));
    }
    all.extend(survey.dispatch.iter().map(|id| ("dispatch", id.clone())));
    all
}

/// Seconds with one decimal.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1}s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(plural(1, "case"), "1 case");
        assert_eq!(plural(2, "property"), "2 properties");
        assert_eq!(plural(4096, "case"), "4 096 cases");
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1 234 567");
        assert_eq!(percent(15_609), "1.56%");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(u64::MAX - 1), "16384.0 PiB");
        assert_eq!(bytes(u64::MAX), "more than can be counted");
    }
}

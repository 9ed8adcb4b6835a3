//! Writes a survey for people: a headline, one row per rule and layer, every finding, advice.
//!
//! It must not decide anything. Layer 10.

use super::advice;
use super::codes::CITED;
use super::grid::{paragraph, sentence};
use super::plan_rows::{rows, unequal};
use super::plan_summary::summary;
use super::shares::{self, change};
use super::style::{fit_word, lines, table};
use super::table_human::coloured;
use super::words::{self, asked, facts, part, percent, short};
use crate::model::Model;
use crate::plan::{Fit, Plan};
use crate::run::{NotJudged, Survey, Surveyed};
use crate::terms::plain;
use std::io::{self, Write};

/// Writes the survey as text no wider than `width` where cells and words allow; verdicts are
/// coloured.
///
/// # Errors
/// Those of the stream.
pub fn plan_human(survey: &Survey, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let source = headline(&survey.model, width, out)?;
    let ranks = asked(survey).into_iter();
    let ranks: Vec<String> = ranks.map(|(key, value)| format!("{key} {value}")).collect();
    writeln!(out, "{}", ranks.join("  "))?;
    // Above a long table stands what it comes to, and what to do.
    let long = survey.plans.len() > ROWS;
    if long {
        summary(survey, width, out)?;
    }
    if let Some(source) = source {
        paragraph(&source, width, out)?;
    }
    for note in &survey.model.notes {
        paragraph(&format!("note: {}", plain(note)), width, out)?;
    }
    let spread = |one: &Surveyed| one.plan.parallel.ep > 1;
    if survey.dispatch.is_some() && !survey.plans.iter().any(spread) {
        let note =
            "note: the dispatch changes nothing: it is for experts spread over groups (--ep)";
        paragraph(note, width, out)?;
    }
    let blocked = &survey.advice.blocked;
    if !blocked.is_empty() {
        let parts = blocked.join(", ");
        let tp = survey.parallel.tp;
        let note = format!("note: tp {tp} does not divide {parts}: verdicts are of experts alone");
        paragraph(&note, width, out)?;
    }
    if let Some(text) = clauses(survey, |one| one.rule.is_none()) {
        paragraph(&format!("unknown: {text}"), width, out)?;
    }
    writeln!(out)?;
    if survey.plans.is_empty() {
        return match clauses(survey, |one| one.rule.is_some()) {
            Some(text) => writeln!(out, "not judged: {text}; see `padproof list rules`"),
            None => writeln!(out, "no rule was chosen; see `padproof list rules`"),
        };
    }
    rows(survey, long, width, out)?;
    unequal(survey, width, out)?;
    if let Some(text) = clauses(survey, |one| one.rule.is_some()) {
        writeln!(out)?;
        paragraph(&format!("not judged: {text}"), width, out)?;
    }
    if long {
        advice::human(survey, width, out)?;
    }
    for group in groups(survey) {
        group.write(width, out)?;
    }
    let first = survey.plans.iter().find_map(|one| one.plan.reason());
    let code = first.map(|found| format!("what a code means: padproof explain {}", found.code));
    let help: Vec<String> = code
        .into_iter()
        .chain(cited(survey).then(|| CITED.to_owned()))
        .collect();
    if !help.is_empty() {
        writeln!(out)?;
        paragraph(&help.join("; "), width, out)?;
    }
    match long {
        true => Ok(()),
        false => advice::human(survey, width, out),
    }
}

/// Whether something that is written cites the notes that padproof is built on.
fn cited(survey: &Survey) -> bool {
    let cites = |text: &str| text.contains("facts/");
    let mut found = survey.plans.iter().flat_map(|one| &one.plan.violations);
    cites(&survey.model.source) || found.any(|one| cites(&one.message))
}

/// Rows of a table that is read at a glance.
const ROWS: usize = 6;

/// What was not judged and why, as one line: what is said of several layers alike, once.
pub(super) fn not_judged(survey: &Survey) -> Option<String> {
    clauses(survey, |_| true).map(|text| format!("not judged: {text}"))
}

/// The clauses of some of what was not judged.
fn clauses(survey: &Survey, which: fn(&NotJudged) -> bool) -> Option<String> {
    const HOLE: &str = "the \u{0} layer";
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for one in survey.not_judged.iter().filter(|one| which(one)) {
        let layer = one.layer.name();
        let text = plain(&one.why).replace(&format!("the {layer} layer"), HOLE);
        match alike.iter_mut().find(|(known, _)| *known == text) {
            Some((_, layers)) if layers.contains(&layer) => {}
            Some((_, layers)) => layers.push(layer),
            None => alike.push((text, vec![layer])),
        }
    }
    let clause = |(text, layers): (String, Vec<&str>)| {
        text.replace(HOLE, &format!("the {}", words::layers(&layers)))
    };
    let clauses: Vec<String> = alike.into_iter().map(clause).collect();
    (!clauses.is_empty()).then(|| clauses.join("; "))
}

/// The model's facts in a few lines; where the model comes from, if it has no room there.
fn headline(
    model: &Model,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<Option<String>> {
    let (name, source, grade) = (plain(&model.name), plain(&model.source), model.grade.name());
    let fits = |text: &str| width.is_none_or(|most| text.chars().count() <= most);
    let whole = format!("{name}  ({source}; {grade})");
    let (first, later) = match fits(&whole) {
        true => (whole, None),
        false => (
            format!("{name}  ({grade})"),
            Some(format!("source: {source}")),
        ),
    };
    for text in [first, facts(model).join("  ")] {
        match fits(&text) {
            // No line of the first ones is broken that need not be.
            true => writeln!(out, "{text}")?,
            false => paragraph(&text, width, out)?,
        }
    }
    Ok(later)
}

/// What is said of a plan, a sentence each.
fn texts(plan: &Plan, wrong: Option<&str>) -> Vec<String> {
    let wrong = wrong.map(|wrong| format!("known wrong: {}", plain(wrong)));
    let found = plan
        .violations
        .iter()
        .map(|found| format!("{}: {}", short(found), plain(&found.message)));
    wrong.into_iter().chain(found).chain(told(plan)).collect()
}

/// What a kernel that is told the padding multiplies.
fn told(plan: &Plan) -> Option<String> {
    let (width, hidden) = (plan.width_computed, plan.hidden_computed);
    let (w2_width, w2_hidden) = (plan.w2_width_computed, plan.w2_hidden_computed);
    let second = match (width, hidden) == (w2_width, w2_hidden) {
        true => String::new(),
        false => format!(", by w2 {w2_width} and {w2_hidden}"),
    };
    plan.is_told().then(|| {
        format!(
            "the kernel is told at run time what is padding: it multiplies {width} of {} channels and {hidden} of {} of hidden{second}, {} more arithmetic than without padding",
            plan.width_padded,
            plan.hidden_padded,
            percent(plan.arithmetic_millionths())
        )
    })
}

/// Plans of which the same is said.
struct Group {
    fit: Fit,
    texts: Vec<String>,
    /// Layers, and the rules of which it is said there.
    plans: Vec<(String, Vec<String>)>,
}

fn groups(survey: &Survey) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for one in &survey.plans {
        let (fit, layer) = (one.plan.fit, part(survey, &one.plan));
        let texts = texts(&one.plan, one.wrong.as_deref());
        if texts.is_empty() {
            continue;
        }
        let known = |group: &Group| (group.fit, &group.texts) == (fit, &texts);
        let at = groups.iter().position(known).unwrap_or_else(|| {
            groups.push(Group {
                fit,
                texts,
                plans: Vec::new(),
            });
            groups.len() - 1
        });
        let plans = &mut groups[at].plans;
        match plans.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, rules)) => rules.push(one.plan.rule.clone()),
            None => plans.push((layer, vec![one.plan.rule.clone()])),
        }
    }
    groups
}

impl Group {
    fn write(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let mut heads: Vec<(Vec<&str>, &Vec<String>)> = Vec::new();
        for (layer, rules) in &self.plans {
            match heads.iter_mut().find(|(_, known)| *known == rules) {
                Some((layers, _)) => layers.push(layer),
                None => heads.push((vec![layer], rules)),
            }
        }
        writeln!(out)?;
        for (layers, rules) in heads {
            let (rules, layers) = (advice::some(rules), words::layers(&layers));
            let head = format!("{rules}, {layers}: {}", self.fit.name());
            for line in sentence(&head, width) {
                let line = line.strip_prefix("  ").unwrap_or(&line);
                writeln!(out, "{}", coloured(line, self.fit))?;
            }
        }
        for text in &self.texts {
            for line in sentence(text, width) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

/// Writes one plan in full: its sizes, ranks, tensors and findings.
///
/// # Errors
/// Those of the stream.
pub fn tensors_human(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{}  {}  width {}  hidden {}  overhead {}",
        plan.rule,
        fit_word(plan.fit),
        shares::width(plan),
        change(plan.dims.h, plan.hidden_padded),
        percent(plan.overhead_millionths)
    )?;
    let mut ranks = table(&["rank", "channels", "experts"]);
    let range = |start: u64, len: u64| format!("{start}..{}", start.saturating_add(len));
    for rank in &plan.ranks {
        ranks.add_row([
            rank.rank.to_string(),
            range(rank.start, rank.len),
            range(rank.expert_start, rank.expert_len),
        ]);
    }
    let list = |sizes: &[u64]| {
        let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
        words.join(" x ")
    };
    let mut tensors = table(&["tensor", "dtype", "shape per rank", "logical", "bytes"]);
    for tensor in &plan.tensors {
        tensors.add_row([
            tensor.name.to_owned(),
            tensor.dtype.to_owned(),
            list(&tensor.shape),
            list(&tensor.logical),
            tensor.bytes.to_string(),
        ]);
    }
    for rows in [ranks, tensors] {
        writeln!(out)?;
        for line in lines(&rows) {
            writeln!(out, "{line}")?;
        }
    }
    match texts(plan, None) {
        texts if texts.is_empty() => Ok(()),
        texts => {
            let plans = vec![(plan.layer.to_string(), vec![plan.rule.clone()])];
            let fit = plan.fit;
            Group { fit, texts, plans }.write(None, out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Parallel;
    use crate::rule::Rules;
    use crate::run::{Query, survey};

    fn told(rule: Option<&str>, width: usize) -> String {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let query = Query {
            rule,
            all: false,
            advice: true,
            ..Query::of(Parallel { tp: 8, ep: 1 })
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let mut out = Vec::new();
        plan_human(&found, Some(width), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Forty rules had their rows and findings before a word of what to do.
    #[test]
    fn the_answer_stands_above_a_long_table_and_what_to_do_too() {
        let text = told(None, 160);
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word}\n{text}"));
        let places = [
            "\nbest of each stack",
            "\nto do: ",
            "\nrouted: of 4",
            "\nrule  ",
            "\ntp without padding",
            "\ninstead of ",
        ];
        assert!(places.map(place).is_sorted(), "{text}");
        let long = text.lines().find(|line| line.matches("mxfp4").count() > 4);
        assert_eq!(long, None, "a list of rules");
        // One rule is read at a glance.
        let one = told(Some("vllm.marlin.mxfp4"), 160);
        assert!(
            one.find("\nrule  ") < one.find("\ntp without padding"),
            "{one}"
        );
        assert!(!one.contains("best of each stack") && !one.contains("every one of these"));
    }

    /// "to do: nothing" stood above the note that heads do not divide.
    #[test]
    fn a_degree_that_heads_do_not_take_is_not_what_to_do() {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let query = Query {
            all: false,
            advice: true,
            ..Query::of(Parallel { tp: 3, ep: 1 })
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let mut out = Vec::new();
        plan_human(&found, Some(400), &mut out).unwrap();
        let text = bare(std::str::from_utf8(&out).unwrap());
        let done = text.lines().find(|line| line.starts_with("to do: "));
        let said = "to do: another tp, since 3 does not divide 64 attention heads, ";
        assert!(
            done.is_some_and(|line| line.starts_with(said) && line.contains(": fits ")),
            "{text}"
        );
    }

    /// `vllm.emulation.mxfp4` was the best of vLLM for gpt-oss.
    #[test]
    fn an_emulation_is_never_the_best_of_a_stack() {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let query = Query {
            all: false,
            ..Query::of(Parallel { tp: 8, ep: 8 })
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let mut out = Vec::new();
        summary(&found, Some(160), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("\n  vllm.") && !text.contains("emulation"),
            "{text}"
        );
    }

    /// The text without the codes of colours.
    fn bare(text: &str) -> String {
        let mut parts = text.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| {
            all + part.split_once('m').map_or("", |(_, rest)| rest)
        })
    }

    /// The verdicts began at line 64 of 256, and the best of four stacks stood among kernels.
    #[test]
    fn ten_lines_hold_model_ranks_each_stack_and_what_to_do() {
        for width in [80, 120] {
            let text = bare(&told(None, width));
            let ten: Vec<&str> = text.lines().take(10).collect();
            let said = [
                "gpt-oss-20b",
                "tp 8  ep 1",
                "  sglang.",
                "  transformers.",
                "  trtllm.",
            ];
            for word in said.iter().chain(&["  vllm.", "to do: "]) {
                assert!(
                    ten.iter().any(|line| line.starts_with(word)),
                    "{word}\n{text}"
                );
            }
            assert!(!ten.iter().any(|line| line.contains("(kernel)")), "{text}");
        }
    }

    /// The facts of a model, or four parts that fared alike, pushed what to do below the first ten lines.
    #[test]
    fn ten_lines_hold_the_verdicts_of_every_shipped_model() {
        for model in crate::model::builtin() {
            let query = Query {
                all: false,
                advice: true,
                ..Query::of(Parallel { tp: 8, ep: 1 })
            };
            let found = survey(model, Rules::builtin(), &query).unwrap();
            for width in [80, 120] {
                let mut out = Vec::new();
                plan_human(&found, Some(width), &mut out).unwrap();
                let text = bare(std::str::from_utf8(&out).unwrap());
                let ten: Vec<&str> = text.lines().take(10).collect();
                let told = ten.iter().filter(|line| line.starts_with("  ")).count();
                assert!(told >= found.best_of_stacks().len(), "{width}\n{text}");
                let done = ten.iter().any(|line| line.starts_with("to do: "));
                assert!(done, "{width}\n{text}");
            }
        }
    }

    /// At 120 columns a rule took three lines, for its width held what each rank has.
    #[test]
    fn a_rule_takes_one_line_and_kernels_stand_last() {
        for width in [80, 120] {
            let text = bare(&told(None, width));
            let table = text.lines().skip_while(|line| !line.starts_with("rule  "));
            let table: Vec<&str> = table.skip(1).take_while(|line| !line.is_empty()).collect();
            let model = crate::model::load("gpt-oss-20b").unwrap();
            let query = Query {
                all: false,
                ..Query::of(Parallel { tp: 8, ep: 1 })
            };
            let found = survey(&model, Rules::builtin(), &query).unwrap();
            assert_eq!(table.len(), found.plans.len(), "{text}");
            let kernels: Vec<bool> = table.iter().map(|line| line.contains("(kernel)")).collect();
            assert!(kernels.is_sorted() && kernels.contains(&true), "{text}");
            let shares = "shares ceil-block: 7 x 384, 1 x 192 under";
            assert_eq!(text.matches(shares).count(), 1, "{text}");
        }
    }

    #[test]
    fn lines_keep_the_width_of_a_terminal() {
        for width in [80, 120] {
            for line in told(None, width).lines() {
                // Without the codes of colours.
                let parts = line.split('\u{1b}').enumerate();
                let text = parts.map(|(at, part)| match at {
                    0 => part,
                    _ => part.split_once('m').map_or("", |(_, rest)| rest),
                });
                let wide: usize = text.map(|part| part.chars().count()).sum();
                assert!(wide <= width, "{line}");
            }
        }
    }

    #[test]
    fn what_is_not_judged_alike_is_said_once() {
        let model = crate::model::load("DeepSeek-V3").unwrap();
        let query = Query {
            rule: Some("vllm.*"),
            all: false,
            ..Query::of(Parallel { tp: 8, ep: 1 })
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let text = not_judged(&found).unwrap();
        assert!(
            text.ends_with("covers the shared and dense layers"),
            "{text}"
        );
        assert_eq!(text.matches("no ").count(), 1, "{text}");
    }

    /// facts/upstream-padding.md 1.4 F3: the kernel reads pads only up to the next 128.
    #[test]
    fn a_kernel_that_is_told_the_padding_is_said_to_be() {
        let text = told(Some("flashinfer.trtllm_gen.mxfp4"), 160);
        assert!(text.contains("multiplies 384 of 384 channels and 2944 of 3072 of hidden"));
        assert!(!told(Some("vllm.marlin.mxfp4"), 160).contains("is told"));
    }
}

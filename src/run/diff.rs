//! Compares two tables of plans.
//!
//! It must not format text. Layer 9.

use super::{Line, Table};
use crate::plan::{Fit, is_activation};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// One figure of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    /// A word, or several.
    Word(String),
    /// A number of elements, ranks or bytes.
    Count(u64),
    /// A share, in millionths: what tables hold.
    Millionths(u64),
}

/// A figure's name, and the figure of a line; none where the line's table does not tell it.
type Named = (&'static str, fn(&Line) -> Option<Figure>);

/// Everything that is compared, and shown where it differs.
const FIGURES: [Named; 13] = [
    ("version", |l| word(&l.version)),
    // Tables without the column are of no dispatch.
    ("dispatch", |l| {
        let none = l.dispatch.is_empty();
        word(if none { "none" } else { &l.dispatch })
    }),
    ("verdict", |l| word(l.verdict.name())),
    ("width", |l| Some(Figure::Count(l.width))),
    ("padded", |l| Some(Figure::Count(l.width_padded))),
    ("logical hidden", |l| Some(Figure::Count(l.hidden))),
    ("hidden", |l| Some(Figure::Count(l.hidden_padded))),
    ("w13 rows", |l| Some(Figure::Count(l.w13_rows))),
    ("overhead", |l| {
        Some(Figure::Millionths((l.overhead * 1e6).round() as u64))
    }),
    ("ranks", |l| word(&l.ranks)),
    ("bytes", |l| (l.bytes > 0).then_some(Figure::Count(l.bytes))),
    ("activation bytes", |l| {
        (l.activation_bytes > 0).then_some(Figure::Count(l.activation_bytes))
    }),
    ("codes", |l| Some(Figure::Word(l.codes.join(" ")))),
];

fn word(text: &str) -> Option<Figure> {
    (!text.is_empty()).then(|| Figure::Word(text.to_owned()))
}

/// What became of one line.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The line of the first table, if it has one.
    pub before: Option<Line>,
    /// The line of the second table, if it has one.
    pub after: Option<Line>,
}

impl Change {
    /// The newer line, or the removed one.
    pub fn line(&self) -> &Line {
        let line = self.after.as_ref().or(self.before.as_ref());
        line.expect("a change has at least one side")
    }

    /// What differs between two lines, as (name, before, after). A figure that one of two tables
    /// does not tell is not compared: an older version wrote fewer.
    pub fn figures(&self) -> Vec<(&'static str, Figure, Figure)> {
        let (Some(a), Some(b)) = (&self.before, &self.after) else {
            return Vec::new();
        };
        let both = |&(name, figure): &Named| Some((name, figure(a)?, figure(b)?));
        let told = FIGURES.iter().filter_map(both);
        told.filter(|(_, before, after)| before != after).collect()
    }
}

/// What differs between two tables.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diff {
    /// Lines that changed, came or went, in the order of their keys.
    pub changes: Vec<Change>,
    /// Lines that are the same in both.
    pub same: usize,
}

impl Diff {
    /// Compares line by line; lines are told apart by model, rule, layer, format, TP and EP.
    pub fn of(before: &Table, after: &Table) -> Self {
        let index = |table: &Table| -> BTreeMap<_, _> {
            let keyed = table.lines.iter().map(|line| (owned(line), line.clone()));
            keyed.collect()
        };
        let (mut old, mut new) = (index(before), index(after));
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).cloned().collect();
        let mut diff = Diff::default();
        for key in keys {
            let change = Change {
                before: old.remove(&key),
                after: new.remove(&key),
            };
            let both = change.before.is_some() && change.after.is_some();
            if both && change.figures().is_empty() {
                diff.same += 1;
            } else {
                diff.changes.push(change);
            }
        }
        diff
    }
}

type Key = (String, String, String, String, u64, u64);

fn owned(line: &Line) -> Key {
    let (model, rule, layer, format, tp, ep) = line.key();
    let own = str::to_owned;
    (own(model), own(rule), own(layer), own(format), tp, ep)
}

/// Why a text is no table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Not JSON, or a field is missing or of another kind.
    #[error("{file}: not a table of plans: {source}")]
    Json {
        /// The file.
        file: String,
        /// The parser's sentence, with line and column.
        source: serde_json::Error,
    },
    /// A schema of a newer version.
    #[error("{file}: schema {schema} is newer than this program's ({known})")]
    Schema {
        /// The file.
        file: String,
        /// What it says.
        schema: u64,
        /// What is read.
        known: u64,
    },
    /// JSON of another kind.
    #[error("{file}: has neither `lines` (of plan --all) nor `plans` (of plan) with format json")]
    Neither {
        /// The file.
        file: String,
    },
    /// Two lines for one model, rule, layer, format, TP and EP.
    #[error("{file}: {model}, {rule}, {layer}, tp={tp} stands twice")]
    Twice {
        /// The file.
        file: String,
        /// The model.
        model: String,
        /// The rule.
        rule: String,
        /// The part.
        layer: String,
        /// Ranks.
        tp: u64,
    },
}

/// The newest schema that is read. Until 1 the bytes of a table's line had its activations in them.
pub const TABLE_SCHEMA: u64 = 2;

/// What says how to read the rest.
#[derive(Deserialize)]
struct Schema {
    schema: u64,
}

#[derive(Deserialize)]
struct Document {
    lines: Option<Vec<Line>>,
    model: Option<ModelName>,
    parallel: Option<Ranks>,
    plans: Option<Vec<OnePlan>>,
}

#[derive(Deserialize)]
struct ModelName {
    name: String,
}

#[derive(Deserialize)]
struct Ranks {
    tp: u64,
    ep: u64,
    #[serde(default)]
    dispatch: Option<String>,
}

#[derive(Deserialize)]
struct OnePlan {
    rule: String,
    layer: String,
    format: String,
    verdict: Fit,
    width: u64,
    width_padded: u64,
    hidden: u64,
    hidden_padded: u64,
    w13_rows: u64,
    overhead: f64,
    findings: Vec<Finding>,
    #[serde(default)]
    ranks: Vec<Share>,
    #[serde(default)]
    version: String,
    /// Whether the rule is a dispatch by itself.
    #[serde(default)]
    dispatch: bool,
    #[serde(default)]
    tensors: Vec<Held>,
}

#[derive(Deserialize)]
struct Held {
    name: String,
    bytes: u64,
}

#[derive(Deserialize)]
struct Finding {
    code: String,
}

#[derive(Deserialize)]
struct Share {
    len: u64,
}

impl Table {
    /// Reads what `padproof plan --format json` wrote, with `--all` or without; `file` is named
    /// in errors.
    ///
    /// # Errors
    /// Text that is no such table.
    pub fn parse(text: &str, file: &str) -> Result<Self, TableError> {
        let file = file.to_owned();
        // By itself: a newer version may have other fields than the rest asks for.
        let schema = match serde_json::from_str(text) {
            Ok(Schema { schema }) => schema,
            Err(source) => return Err(TableError::Json { file, source }),
        };
        if schema > TABLE_SCHEMA {
            return Err(TableError::Schema {
                file,
                schema,
                known: TABLE_SCHEMA,
            });
        }
        let document: Document = match serde_json::from_str(text) {
            Ok(document) => document,
            Err(source) => return Err(TableError::Json { file, source }),
        };
        let lines = match document {
            Document {
                lines: Some(mut lines),
                ..
            } => {
                if schema < 2 {
                    // Not what is compared now: not told.
                    lines.iter_mut().for_each(|line| line.bytes = 0);
                }
                lines
            }
            Document {
                plans: Some(plans),
                model: Some(model),
                parallel: Some(ranks),
                ..
            } => plans
                .into_iter()
                .map(|plan| line(&model.name, &ranks, plan))
                .collect(),
            _ => return Err(TableError::Neither { file }),
        };
        let mut seen = BTreeSet::new();
        for line in &lines {
            if !seen.insert(line.key()) {
                let (model, rule, layer) =
                    (line.model.clone(), line.rule.clone(), line.layer.clone());
                let tp = line.tp;
                return Err(TableError::Twice {
                    file,
                    model,
                    rule,
                    layer,
                    tp,
                });
            }
        }
        Ok(Table { lines })
    }
}

fn line(model: &str, ranks: &Ranks, plan: OnePlan) -> Line {
    let mut codes: Vec<String> = plan.findings.into_iter().map(|f| f.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let held = |activation: bool| {
        let all = plan.tensors.iter();
        let these = all.filter(|t| is_activation(&t.name) == activation);
        these.fold(0u64, |all, t| all.saturating_add(t.bytes))
    };
    let dispatch = match plan.dispatch {
        true => Some(plan.rule.clone()),
        false => ranks.dispatch.clone(),
    };
    Line {
        model: model.to_owned(),
        dispatch: dispatch.unwrap_or_default(),
        bytes: held(false),
        activation_bytes: held(true),
        rule: plan.rule,
        layer: plan.layer,
        format: plan.format,
        tp: ranks.tp,
        ep: ranks.ep,
        verdict: plan.verdict,
        width: plan.width,
        width_padded: plan.width_padded,
        hidden: plan.hidden,
        hidden_padded: plan.hidden_padded,
        w13_rows: plan.w13_rows,
        overhead: plan.overhead,
        ranks: super::lengths(plan.ranks.iter().map(|rank| rank.len)),
        codes,
        version: plan.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[(&str, u64, Fit, u64)]) -> Table {
        let line = |&(rule, tp, verdict, width_padded): &(&str, u64, Fit, u64)| Line {
            model: "m".to_owned(),
            dispatch: String::new(),
            rule: rule.to_owned(),
            layer: "routed".to_owned(),
            format: "fp8".to_owned(),
            tp,
            ep: 1,
            verdict,
            width: 96,
            width_padded,
            hidden: 64,
            hidden_padded: 64,
            w13_rows: 2 * width_padded,
            overhead: 0.0,
            ranks: String::new(),
            bytes: 0,
            activation_bytes: 0,
            codes: Vec::new(),
            version: String::new(),
        };
        Table {
            lines: lines.iter().map(line).collect(),
        }
    }

    #[test]
    fn only_what_changed_is_kept() {
        let before = table(&[
            ("a", 1, Fit::Fits, 96),
            ("a", 2, Fit::Fits, 96),
            ("b", 1, Fit::Fits, 96),
        ]);
        let after = table(&[
            ("a", 1, Fit::Fits, 96),
            ("a", 2, Fit::Padded, 128),
            ("c", 1, Fit::Fits, 96),
        ]);
        let diff = Diff::of(&before, &after);
        assert_eq!(diff.same, 1);
        let kinds: Vec<_> = diff
            .changes
            .iter()
            .map(|c| {
                (
                    c.line().rule.as_str(),
                    c.before.is_some(),
                    c.after.is_some(),
                )
            })
            .collect();
        assert_eq!(
            kinds,
            [("a", true, true), ("b", true, false), ("c", false, true)]
        );
        assert!(Diff::of(&after, &after).changes.is_empty());
    }

    #[test]
    fn order_of_lines_does_not_matter() {
        let one = table(&[("a", 1, Fit::Fits, 96), ("b", 1, Fit::Fits, 96)]);
        let other = table(&[("b", 1, Fit::Fits, 96), ("a", 1, Fit::Fits, 96)]);
        assert!(Diff::of(&one, &other).changes.is_empty());
    }

    #[test]
    fn whatever_a_table_tells_is_compared_and_shown() {
        let mut before = table(&[("a", 1, Fit::Fits, 96)]);
        before.lines[0].version = "0.1".to_owned();
        before.lines[0].ranks = "96*1".to_owned();
        before.lines[0].bytes = 10;
        let names = |change: fn(&mut Line)| -> Vec<&str> {
            let mut after = before.clone();
            change(&mut after.lines[0]);
            let diff = Diff::of(&before, &after);
            let all = diff.changes.iter().flat_map(Change::figures);
            all.map(|(name, ..)| name).collect()
        };
        assert_eq!(names(|l| l.version = "0.2".to_owned()), ["version"]);
        assert_eq!(names(|l| l.hidden = 60), ["logical hidden"]);
        assert_eq!(names(|l| l.dispatch = "d".to_owned()), ["dispatch"]);
        assert_eq!(names(|l| l.ranks = "48*2".to_owned()), ["ranks"]);
        assert_eq!(names(|l| l.bytes = 11), ["bytes"]);
        assert_eq!(names(|l| l.activation_bytes = 1), [""; 0]);
        assert_eq!(names(|l| l.overhead = 0.000_001), ["overhead"]);
        // A table of an older version tells neither.
        assert_eq!(names(|l| l.version.clear()), [""; 0]);
        assert_eq!(names(|l| l.ranks.clear()), [""; 0]);
    }

    #[test]
    fn a_newer_table_is_refused_by_its_schema_whatever_else_it_has() {
        let error = Table::parse("{\"schema\": 3, \"lines\": [{\"new\": 1}]}", "f").unwrap_err();
        assert!(
            matches!(error, TableError::Schema { schema: 3, .. }),
            "{error}"
        );
    }

    /// Bytes of the first schema had activations in them.
    #[test]
    fn bytes_of_an_older_table_are_not_compared() {
        let line = serde_json::to_string(&table(&[("a", 1, Fit::Fits, 96)]).lines[0]).unwrap();
        let line = line.replace("\"bytes\":0", "\"bytes\":7");
        let bytes = |schema: u64| {
            let text = format!("{{\"schema\": {schema}, \"lines\": [{line}]}}");
            Table::parse(&text, "f").unwrap().lines[0].bytes
        };
        assert_eq!([bytes(1), bytes(2)], [0, 7]);
    }
}

//! Turns the text of a suite file into a suite, every sweep expanded and every name checked.
//!
//! It must not read files or run anything. Layer 8.

use super::entry::{CaseEntry, Expect, Suite};
use super::error::{Fault, SuiteError};
use super::file_entry::file;
use super::plan_entry::{PlanEntry, PlanExpect, PlanModel, PlanRules};
use super::raw::{
    ENTRY_KEYS, OneOrMany, RawCase, RawFile, RawHead, RawModel, RawPlan, RawPlanExpect, RawSuite,
};
use super::sweep;
use super::valid::{case, chosen, codes};
use crate::case::{KEYS, Scheme};
use crate::plan::Fit;
use crate::rule::{Rule, Rules};
use crate::terms::{LayerKind, plain};
use std::collections::{BTreeMap, HashMap};
use toml::{Spanned, Value};

/// Most entries a suite may expand to.
pub const CASES_MAX: usize = 100_000;

/// Share of vacuous verdicts that a suite allows unless it says otherwise (style.md C.5).
const VACUOUS_MAX: f64 = 0.5;

/// Longest name of a suite or entry.
const NAME_MAX: usize = 64;

/// Reads a suite whose cases name shipped rules; `file` is what messages call it.
pub fn parse(text: &str, file: &str) -> Result<Suite, SuiteError> {
    parse_with(text, file, Rules::builtin())
}

/// Reads a suite whose cases name rules of `rules`.
pub fn parse_with(text: &str, file: &str, rules: &Rules) -> Result<Suite, SuiteError> {
    // Found once: a suite may have a hundred thousand entries.
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line_at = |byte: usize| 1 + ends.partition_point(|end| *end < byte);
    let at = |line: usize| {
        let file = file.to_owned();
        move |fault| SuiteError {
            file,
            line,
            fault: Box::new(fault),
        }
    };
    let raw: RawSuite = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(span.start));
        // The first line says it; the rest would repeat the text of the file.
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        let message = plain(&message);
        at(line)(Fault::Toml { message })
    })?;
    let mut suite = head(raw.suite.get_ref()).map_err(at(line_at(raw.suite.span().start)))?;
    suite.file = file.to_owned();
    suite.line = line_at(raw.suite.span().start);
    let own = Rules::of(raw.rule, file).map_err(|e| {
        let message = e.to_string();
        at(1)(Fault::Toml { message })
    })?;
    let mut builder = Builder {
        suite,
        names: HashMap::new(),
        line: 0,
        own,
        rules,
    };
    let mut entries: Vec<(usize, RawEntry)> = Vec::new();
    entries.extend(
        raw.case
            .into_iter()
            .map(|e| (e.span().start, RawEntry::Case(e.into_inner()))),
    );
    entries.extend(raw.sweep.into_iter().map(unwrap_sweep));
    entries.extend(
        raw.plan
            .into_iter()
            .map(|e| (e.span().start, RawEntry::Plan(Box::new(e.into_inner())))),
    );
    entries.extend(
        raw.file
            .into_iter()
            .map(|e| (e.span().start, RawEntry::File(Box::new(e.into_inner())))),
    );
    entries.sort_by_key(|(start, _)| *start);
    for (start, entry) in entries {
        builder.line = line_at(start);
        let added = match entry {
            RawEntry::Case(raw) => builder.add_case(raw),
            RawEntry::Sweep(raw) => builder.add_sweep(&raw),
            RawEntry::Plan(raw) => builder.add_plan(*raw),
            RawEntry::File(raw) => builder.add_file(*raw),
        };
        added.map_err(at(builder.line))?;
    }
    Ok(builder.suite)
}

enum RawEntry {
    Case(RawCase),
    Sweep(BTreeMap<String, Value>),
    Plan(Box<RawPlan>),
    File(Box<RawFile>),
}

fn unwrap_sweep(entry: Spanned<BTreeMap<String, Value>>) -> (usize, RawEntry) {
    (entry.span().start, RawEntry::Sweep(entry.into_inner()))
}

fn head(head: &RawHead) -> Result<Suite, Fault> {
    name(&head.name)?;
    let vacuous_max = head.vacuous_max.unwrap_or(VACUOUS_MAX);
    let shares = head
        .coverage
        .iter()
        .map(|(key, share)| (key.as_str(), *share));
    for (key, share) in shares.chain([("vacuous_max", vacuous_max)]) {
        if !(0.0..=1.0).contains(&share) {
            return Err(Fault::Value {
                name: head.name.clone(),
                key: key.to_owned(),
                value: share.to_string(),
                wanted: "a share from 0 to 1",
            });
        }
    }
    Ok(Suite {
        name: head.name.clone(),
        file: String::new(),
        line: 0,
        shipped: false,
        about: head.about.clone(),
        properties: head.properties.clone(),
        coverage: head.coverage.clone(),
        vacuous_max,
        cases: Vec::new(),
        plans: Vec::new(),
        files: Vec::new(),
    })
}

fn name(name: &str) -> Result<(), Fault> {
    let spelled = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(spelled) {
        return Err(Fault::Name {
            name: name.chars().take(NAME_MAX).collect(),
        });
    }
    Ok(())
}

/// The suite so far, the names in it, and the line of the entry being added.
struct Builder<'r> {
    suite: Suite,
    names: HashMap<String, usize>,
    line: usize,
    /// Rules of the file itself.
    own: Rules,
    /// Rules that cases may name.
    rules: &'r Rules,
}

impl Builder<'_> {
    /// The full name of an entry, kept so that no other takes it.
    fn claim(&mut self, short: &str, swept: &str) -> Result<String, Fault> {
        name(short)?;
        let slash = if swept.is_empty() { "" } else { "/" };
        let full = format!("{}/{short}{slash}{swept}", self.suite.name);
        if let Some(first) = self.names.insert(full.clone(), self.line) {
            return Err(Fault::Duplicate { name: full, first });
        }
        if self.names.len() > CASES_MAX {
            return Err(Fault::TooMany {
                name: short.to_owned(),
                max: CASES_MAX,
            });
        }
        Ok(full)
    }

    fn add_case(&mut self, raw: RawCase) -> Result<(), Fault> {
        let full = self.claim(&raw.name, "")?;
        let expect = expect(&full, raw.expect.as_deref(), raw.why.as_deref())?;
        let case = case(&full, &raw.line, self.rules)?;
        self.suite.cases.push(CaseEntry {
            name: full,
            case,
            expect,
            properties: raw.properties,
            why: raw.why,
            link: raw.link,
            line: self.line,
        });
        Ok(())
    }

    fn add_sweep(&mut self, raw: &BTreeMap<String, Value>) -> Result<(), Fault> {
        let short = text(raw, "name", "sweep")?.ok_or_else(|| Fault::Toml {
            message: "missing field `name` in [[sweep]]".to_owned(),
        })?;
        name(&short)?;
        for key in raw.keys() {
            if !ENTRY_KEYS.contains(&key.as_str()) && !KEYS.contains(&key.as_str()) {
                return Err(Fault::UnknownKey {
                    name: short,
                    key: key.clone(),
                });
            }
        }
        let line = text(raw, "line", &short)?.unwrap_or_default();
        let why = text(raw, "why", &short)?;
        let link = text(raw, "link", &short)?;
        let expect = expect(
            &short,
            text(raw, "expect", &short)?.as_deref(),
            why.as_deref(),
        )?;
        let properties = texts(raw, "properties", &short)?;
        let mut axes = Vec::new();
        for key in KEYS {
            if let Some(value) = raw.get(*key) {
                axes.push(sweep::axis(&short, key, value)?);
            }
        }
        if axes.is_empty() {
            return Err(Fault::NothingSwept { name: short });
        }
        let left = CASES_MAX - self.names.len();
        let swept = sweep::product(&axes, left).ok_or_else(|| Fault::TooMany {
            name: short.clone(),
            max: CASES_MAX,
        })?;
        for values in swept {
            let full = self.claim(&short, &values)?;
            let comma = if line.is_empty() { "" } else { "," };
            let case = case(&full, &format!("{line}{comma}{values}"), self.rules)?;
            self.suite.cases.push(CaseEntry {
                name: full,
                case,
                expect,
                properties: properties.clone(),
                why: why.clone(),
                link: link.clone(),
                line: self.line,
            });
        }
        Ok(())
    }

    fn add_file(&mut self, raw: RawFile) -> Result<(), Fault> {
        let full = self.claim(&raw.name, "")?;
        let case = case(&full, &raw.line, self.rules)?;
        let entry = file(full, case, raw, self.line)?;
        self.suite.files.push(entry);
        Ok(())
    }

    /// Which rules an entry means: a rule of the file before the shipped ones.
    fn plan_rules(
        &self,
        name: &str,
        rule: Option<String>,
        scheme: Option<String>,
        refine: Option<bool>,
    ) -> Result<PlanRules, Fault> {
        match (rule, scheme) {
            (None, Some(line)) => {
                spelled_scheme(name, &line).map(|s| PlanRules::Spelled(s, refine))
            }
            (None, None) if refine.is_none() => Ok(PlanRules::Every),
            (Some(id), None) if refine.is_none() => Ok(match self.own.get(&id) {
                Ok(own) => PlanRules::Own(Box::new(own.clone())),
                Err(_) => PlanRules::Named(id),
            }),
            _ => Err(Fault::TwoRules {
                name: name.to_owned(),
            }),
        }
    }

    /// The dispatch that an entry names: of the file before a shipped one.
    fn dispatch(&self, name: &str, given: &str) -> Result<Box<Rule>, Fault> {
        let own = self
            .own
            .dispatch(given)
            .or_else(|_| self.rules.dispatch(given));
        let found = own.map_err(|e| Fault::Dispatch {
            name: name.to_owned(),
            message: e.to_string(),
        })?;
        Ok(Box::new(found.clone()))
    }

    /// A plan entry; lists of models, tp and formats are expanded like a sweep.
    fn add_plan(&mut self, raw: RawPlan) -> Result<(), Fault> {
        let (models, swept_models) = match raw.model {
            RawModel::Named(name) => (vec![PlanModel::Named(name)], false),
            RawModel::Sizes(sizes) => {
                chosen(&raw.name, &sizes)?;
                (vec![PlanModel::Sizes(sizes)], false)
            }
            RawModel::Many(names) => (names.into_iter().map(PlanModel::Named).collect(), true),
        };
        let (ranks, swept_ranks) = match raw.tp {
            None => (vec![1], false),
            Some(OneOrMany::One(tp)) => (vec![tp], false),
            Some(OneOrMany::Many(tps)) => (tps, true),
        };
        let (formats, swept_formats) = match raw.format {
            None => (vec![None], false),
            Some(OneOrMany::One(format)) => (vec![Some(format)], false),
            Some(OneOrMany::Many(all)) => (all.into_iter().map(Some).collect(), true),
        };
        let ep = raw.ep.unwrap_or(1);
        let rules = self.plan_rules(&raw.name, raw.rule, raw.scheme, raw.refine)?;
        let dispatch = raw.dispatch.as_deref();
        let dispatch = dispatch
            .map(|given| self.dispatch(&raw.name, given))
            .transpose()?;
        let expect = plan_expect(&raw.name, raw.expect)?;
        let combinations = models.iter().flat_map(|model| {
            let formats = &formats;
            let each = move |&tp| formats.iter().map(move |&format| (model, tp, format));
            ranks.iter().flat_map(each)
        });
        for (model, tp, format) in combinations {
            if tp == 0 || ep == 0 || !tp.is_multiple_of(ep) {
                return Err(Fault::Value {
                    name: raw.name,
                    key: "tp, ep".to_owned(),
                    value: format!("{tp}, {ep}"),
                    wanted: "at least 1 each with ep a divisor of tp",
                });
            }
            let mut swept = Vec::new();
            if let (PlanModel::Named(name), true) = (model, swept_models) {
                swept.push(format!("model={name}"));
            }
            if swept_ranks {
                swept.push(format!("tp={tp}"));
            }
            if let (Some(format), true) = (format, swept_formats) {
                swept.push(format!("format={format}"));
            }
            let name = self.claim(&raw.name, &swept.join(","))?;
            self.suite.plans.push(PlanEntry {
                name,
                model: model.clone(),
                tp,
                ep,
                format,
                rules: rules.clone(),
                dispatch: dispatch.clone(),
                layer: raw.layer.unwrap_or(LayerKind::Routed),
                expect: expect.clone(),
                why: raw.why.clone(),
                link: raw.link.clone(),
                line: self.line,
            });
        }
        Ok(())
    }
}

fn spelled_scheme(name: &str, line: &str) -> Result<crate::case::PadSpec, Fault> {
    match case(name, line, Rules::builtin())?.scheme {
        Scheme::Spelled(spec) => Ok(spec),
        Scheme::Rule(_) => Err(Fault::Value {
            name: name.to_owned(),
            key: "scheme".to_owned(),
            value: format!("\"{line}\""),
            wanted: "a padding scheme such as \"pad=i64,split=floor\"",
        }),
    }
}

fn expect(name: &str, word: Option<&str>, why: Option<&str>) -> Result<Expect, Fault> {
    match word {
        None | Some("pass") => Ok(Expect::Pass),
        Some(word @ ("fail" | "vacuous")) => match (word, why.is_some_and(|why| !why.is_empty())) {
            ("fail", true) => Ok(Expect::Fail),
            (_, true) => Ok(Expect::Vacuous),
            (_, false) => Err(Fault::NoReason {
                name: name.to_owned(),
                word: word.to_owned(),
            }),
        },
        Some(word) => Err(Fault::Value {
            name: name.to_owned(),
            key: "expect".to_owned(),
            value: format!("\"{word}\""),
            wanted: "\"pass\", \"fail\" or \"vacuous\"",
        }),
    }
}

fn plan_expect(name: &str, raw: RawPlanExpect) -> Result<PlanExpect, Fault> {
    const ALL: [Fit; 7] = [
        Fit::Fits,
        Fit::Padded,
        Fit::Slow,
        Fit::Unknown,
        Fit::Refused,
        Fit::Unrepresentable,
        Fit::Wrong,
    ];
    let words = match raw.verdict {
        None => Vec::new(),
        Some(OneOrMany::One(word)) => vec![word],
        Some(OneOrMany::Many(words)) => words,
    };
    let mut verdicts = Vec::with_capacity(words.len());
    for word in words {
        let fit = ALL.into_iter().find(|fit| fit.name() == word);
        verdicts.push(fit.ok_or_else(|| Fault::Value {
            name: name.to_owned(),
            key: "verdict".to_owned(),
            value: format!("\"{word}\""),
            wanted: "one of fits, padded, slow, unknown, refused, unrepresentable, wrong",
        })?);
    }
    codes(name, "codes", raw.codes.as_deref())?;
    codes(name, "no_codes", raw.no_codes.as_deref())?;
    Ok(PlanExpect {
        verdicts,
        width: raw.width,
        width_padded: raw.width_padded,
        width_computed: raw.width_computed,
        hidden: raw.hidden,
        hidden_padded: raw.hidden_padded,
        hidden_computed: raw.hidden_computed,
        w13_rows: raw.w13_rows,
        w2_cols: raw.w2_cols,
        ranks: raw.ranks,
        codes: raw.codes.unwrap_or_default(),
        no_codes: raw.no_codes.unwrap_or_default(),
        rules: raw.rules,
        overhead: raw.overhead,
        shapes: raw.shapes,
        logical: raw.logical,
        bytes: raw.bytes,
        blocks: raw.blocks,
        aligned_tp: raw.aligned_tp,
        usable_tp: raw.usable_tp,
        says: raw.says,
    })
}

/// A sweep's text under `key`, if it has one.
fn text(raw: &BTreeMap<String, Value>, key: &str, entry: &str) -> Result<Option<String>, Fault> {
    match raw.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => Err(not_text(entry, key, value)),
    }
}

/// A sweep's list of texts under `key`, empty if it has none.
fn texts(raw: &BTreeMap<String, Value>, key: &str, entry: &str) -> Result<Vec<String>, Fault> {
    let Some(value) = raw.get(key) else {
        return Ok(Vec::new());
    };
    let list = value
        .as_array()
        .ok_or_else(|| not_text(entry, key, value))?;
    list.iter()
        .map(|value| {
            value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| not_text(entry, key, value))
        })
        .collect()
}

fn not_text(entry: &str, key: &str, value: &Value) -> Fault {
    Fault::Value {
        name: entry.to_owned(),
        key: key.to_owned(),
        value: value.to_string(),
        wanted: "text in quotes",
    }
}

//! What each fuzz target asserts, and how its inputs are read from files.
//!
//! `tests/replay.rs` includes this file, so that the seeds run through the same functions on
//! stable. Nothing here panics by intention: a failing claim is an [`Outcome`].

use arbitrary::{Arbitrary, Unstructured};
use padproof::audit::{
    Audit, AuditError, Fault, audit_bytes as audit_of, audit_files, diagnose, layer_shape,
};
use padproof::case::Case;
use padproof::checkpoint::{Checkpoint, Dump, Layer, TensorFile};
use padproof::layout::{Map, for_each, for_each_storage_pad, logical_of, map, roles};
use padproof::model;
use padproof::pad::Certificate;
use padproof::plan::{Parallel, Plan, layers, plan, plan_layer};
use padproof::property::{Trial, Verdict, find};
use padproof::rule::Rules;
use padproof::subject::Cpu;
use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// What came of one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The claim held, and the input is worth keeping.
    Held,
    /// The input was refused, skipped or proved nothing.
    Rejected,
    /// The claim failed: the evidence, with a reproducer where there is one.
    Failed(String),
}

/// A target's function.
pub enum Body {
    /// Takes a case: the bytes make the generator's choices.
    Case(fn(&Case) -> Outcome),
    /// Takes the bytes as they are.
    Bytes(fn(&[u8]) -> Outcome),
}

/// Every target by name; `seeds/NAME/` holds its seeds.
pub const ALL: &[(&str, Body)] = &[
    ("audit_bytes", Body::Bytes(audit_bytes)),
    ("audit_file", Body::Bytes(audit_file)),
    ("case_text", Body::Bytes(case_text)),
    ("certificate", Body::Bytes(certificate)),
    ("model_config", Body::Bytes(model_config)),
    ("pack_round_trip", Body::Case(pack_round_trip)),
    ("pad_identity", Body::Case(pad_identity)),
    ("rule_file", Body::Bytes(rule_file)),
    ("tp_sum", Body::Case(tp_sum)),
];

/// Runs a file, or every file below a folder in order of names; each outcome with its input.
///
/// A file `*.case` holds case lines as text, one a line, for a target that takes cases; any
/// other file holds the fuzzer's bytes.
///
/// # Errors
/// A path that cannot be read, a case line that does not parse.
pub fn replay_path(body: &Body, path: &Path) -> io::Result<Vec<(String, Outcome)>> {
    if path.is_dir() {
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path)? {
            inside.push(entry?.path());
        }
        inside.sort();
        let mut all = Vec::new();
        for path in inside {
            all.extend(replay_path(body, &path)?);
        }
        return Ok(all);
    }
    let bytes = std::fs::read(path)?;
    let shown = path.display().to_string();
    match body {
        Body::Bytes(run) => Ok(vec![(shown, run(&bytes))]),
        Body::Case(run) if path.extension().is_some_and(|e| e == "case") => {
            let invalid = |e: &dyn Display| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{shown}: {e}"))
            };
            let text = str::from_utf8(&bytes).map_err(|e| invalid(&e))?;
            let lines = text
                .lines()
                .filter(|l| !l.is_empty() && !l.starts_with('#'));
            lines
                .map(|line| {
                    let case: Case = line.parse().map_err(|e| invalid(&e))?;
                    Ok((format!("{shown}: {line}"), run(&case)))
                })
                .collect()
        }
        Body::Case(run) => match Case::arbitrary_take_rest(Unstructured::new(&bytes)) {
            Ok(case) => Ok(vec![(shown, run(&case))]),
            Err(_) => Ok(vec![(shown, Outcome::Rejected)]),
        },
    }
}

thread_local! {
    // One subject a thread keeps its buffers from case to case; it lives as long as the process.
    static TRIAL: RefCell<Trial<'static>> =
        RefCell::new(Trial::new(Box::leak(Box::new(Cpu::with_threads(1)))));
}

/// Asks one property of one case.
pub fn ask(property: &str, case: &Case) -> Outcome {
    let Some(property) = find(property) else {
        return Outcome::Failed(format!("no property is called `{property}`"));
    };
    match TRIAL.with_borrow_mut(|trial| (property.check)(case, trial)) {
        Verdict::Pass(_) => Outcome::Held,
        Verdict::Skip(_) | Verdict::Vacuous(_) => Outcome::Rejected,
        Verdict::Fail(found) => Outcome::Failed(format!(
            "FAIL {}  {}  {}\n  {} wanted {}, got {}; bound: {}\n  {} of {} elements differ\n  repro: {}",
            found.property,
            found.subject,
            found.case,
            found.place,
            found.wanted,
            found.actual,
            found.bound,
            found.differing,
            found.total,
            found.repro(),
        )),
        Verdict::Broken(error) => Outcome::Failed(format!(
            "BROKEN {}  {case}: {error}\n  repro: padproof check {} {case}",
            property.name, property.name
        )),
    }
}

/// The padded layer gives the outputs of the reference and of its unpadded shards.
pub fn pad_identity(case: &Case) -> Outcome {
    ask("pad-identity", case)
}

/// Unpacking restores what was packed.
pub fn pack_round_trip(case: &Case) -> Outcome {
    ask("pack-round-trip", case)
}

/// The ranks' partial outputs add up.
pub fn tp_sum(case: &Case) -> Outcome {
    ask("tp-sum", case)
}

/// Longest error sentence: it may list the words it knows.
const SENTENCE_MAX: usize = 1500;

/// A refusal must be one sentence.
fn refused(error: &dyn Display) -> Outcome {
    let text = error.to_string();
    let one_line = !text.chars().any(char::is_control);
    if text.trim().is_empty() || !one_line || text.len() > SENTENCE_MAX {
        return Outcome::Failed(format!("not one clear sentence: {text:?}"));
    }
    Outcome::Rejected
}

/// Any text is a case that survives being written and read, or is refused in one sentence.
pub fn case_text(bytes: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(bytes) else {
        return Outcome::Rejected;
    };
    let case: Case = match text.parse() {
        Ok(case) => case,
        Err(error) => return refused(&error),
    };
    for spelled in [format!("{case}"), format!("{case:#}")] {
        if spelled.parse::<Case>().as_ref() != Ok(&case) {
            return Outcome::Failed(format!("{text:?} is written {spelled}, another case"));
        }
    }
    match plan(&case) {
        Ok(_) => Outcome::Held,
        Err(error) => match refused(&error) {
            Outcome::Rejected => Outcome::Held,
            other => other,
        },
    }
}

/// Ranks under which fuzzed models and rules are planned.
const PARALLEL: [Parallel; 4] = [
    Parallel { tp: 1, ep: 1 },
    Parallel { tp: 3, ep: 1 },
    Parallel { tp: 8, ep: 2 },
    Parallel { tp: 65_536, ep: 1 },
];

/// Any text is a model that every shipped rule can be asked about, or is refused in one sentence.
pub fn model_config(bytes: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(bytes) else {
        return Outcome::Rejected;
    };
    let model = match model::parse(text, "config.json", None) {
        Ok(model) => model,
        Err(error) => return refused(&error),
    };
    for layer in layers(&model, 1) {
        for rule in Rules::builtin().iter() {
            for parallel in &PARALLEL[..3] {
                if let Err(error) = plan_layer(&layer, *parallel, rule, &[])
                    && let Outcome::Failed(why) = refused(&error)
                {
                    return Outcome::Failed(format!("{}: {why}", rule.id));
                }
            }
        }
    }
    Outcome::Held
}

/// Any text is a set of rules that can plan, or is refused in one sentence.
pub fn rule_file(bytes: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(bytes) else {
        return Outcome::Rejected;
    };
    let rules = match Rules::parse(text, "rules.toml") {
        Ok(rules) => rules,
        Err(error) => return refused(&error),
    };
    let model = match model::load("nemotronh") {
        Ok(model) => model,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    for rule in rules.iter() {
        for parallel in PARALLEL {
            let planned = plan_layer(&layers(&model, 1)[0], parallel, rule, &[&rule.id]);
            if let Err(error) = planned
                && let Outcome::Failed(why) = refused(&error)
            {
                return Outcome::Failed(format!("{}: {why}", rule.id));
            }
        }
    }
    if rules.iter().next().is_some() {
        Outcome::Held
    } else {
        Outcome::Rejected
    }
}

/// Largest tensor that the audit target makes up.
const TENSOR_BYTES_MAX: usize = 1 << 16;

/// An audit of arbitrary bytes judges each pad as a plain visit of every position does.
pub fn audit_bytes(bytes: &[u8]) -> Outcome {
    let mut choices = Unstructured::new(bytes);
    let Ok(case) = Case::arbitrary(&mut choices) else {
        return Outcome::Rejected;
    };
    let Ok(plan) = plan(&case) else {
        return Outcome::Rejected;
    };
    let roles: Vec<_> = roles(&plan).collect();
    let choose = |choices: &mut Unstructured<'_>, n: usize| choices.choose_index(n).unwrap_or(0);
    let role = roles[choose(&mut choices, roles.len())];
    let rank = choose(&mut choices, plan.ranks.len());
    let whole = choices.ratio(7, 8).unwrap_or(true);
    let mut stored = choices.take_rest().to_vec();
    let map = match map(&plan, role, rank) {
        Ok(map) => map,
        Err(error) => return refused(&error),
    };
    if whole && map.bytes() <= TENSOR_BYTES_MAX {
        // Sized as the plan says, so that the audit looks inside; what the input lacks is zero.
        stored.resize(map.bytes(), 0);
    }
    match audit_of(&plan, role, rank, &stored) {
        Err(error) => refused(&error),
        Ok(audit) => match disagreement(&plan, &map, &stored, &audit) {
            None => Outcome::Held,
            Some(why) => Outcome::Failed(format!(
                "audit of {} rank {rank} of {case}: {why}",
                role.name()
            )),
        },
    }
}

/// Where the audit and a visit of every single position differ.
fn disagreement(plan: &Plan, map: &Map, stored: &[u8], audit: &Audit) -> Option<String> {
    if stored.len() != map.bytes() {
        let only_size = audit.differing == 1 && audit.first[0].fault == Fault::Size;
        return (!only_size).then(|| format!("wrong size gave {:?}", audit.first));
    }
    let scale = map.role.name().contains("scale");
    let (mut pads, mut loud, mut minus) = (0_u64, 0_u64, 0_u64);
    for_each(map, |_, at, logical| {
        if logical.is_none() {
            let value = map.dtype.decode(map.grid.read(stored, at));
            pads += 1;
            if scale {
                loud += u64::from(!value.is_finite());
            } else {
                loud += u64::from(value != 0.0);
                minus += u64::from(value == 0.0 && value.is_sign_negative());
            }
        }
    });
    for_each_storage_pad(map, |_, at| {
        pads += 1;
        let wanted = map.grid.storage.pad_code();
        loud += u64::from(wanted.is_some_and(|code| code != map.grid.read(stored, at)));
    });
    let wanted = (pads, loud, minus);
    let actual = (audit.pads, audit.differing, audit.minus_zero_pads);
    (wanted != actual).then(|| {
        format!(
            "wanted (pads, loud, minus zero) {wanted:?}, got {actual:?}, under {}",
            plan.rule
        )
    })
}

/// Most ranks of a case that the file target takes: a plan of more costs more than it shows.
const FILE_RANKS_MAX: u64 = 64;

/// Any bytes are a safetensors file that can be audited against itself (`before.` against the rest,
/// under the case of its metadata), or are refused in one sentence. A clean audit is checked once
/// more, element by element.
pub fn audit_file(bytes: &[u8]) -> Outcome {
    let file = match TensorFile::from_bytes("input", bytes.to_vec()) {
        Ok(file) => file,
        Err(error) => return refused(&error),
    };
    let line = file.metadata().get("case").cloned().unwrap_or_default();
    let Ok(case) = line.parse::<Case>() else {
        return Outcome::Rejected;
    };
    let planned = plan(&case).ok().filter(|p| p.parallel.tp <= FILE_RANKS_MAX);
    let Some(plan) = planned else {
        return Outcome::Rejected;
    };
    match audited(&plan, &Checkpoint::of_file(file)) {
        Err(error) => refused(&error),
        Ok(None) => Outcome::Held,
        Ok(Some(why)) => Outcome::Failed(format!("audit of a file of {case}: {why}")),
    }
}

/// A certificate's text is read, written and read to the same, sealed or not, with a plan whose shares tile
/// the axis; or it is refused in one sentence.
pub fn certificate(bytes: &[u8]) -> Outcome {
    let read = match Certificate::parse(bytes, "input") {
        Ok(read) => read,
        Err(error) => return refused(&error),
    };
    let parts = [Some(&read.plan.routed), read.plan.shared.as_ref()];
    for part in parts.into_iter().flatten() {
        let width = &part.width;
        let real: u64 = width.pieces.iter().map(|piece| piece.1).sum();
        let slots = width.slot.checked_mul(width.pieces.len() as u64);
        if real != width.from || slots != Some(width.to) {
            return Outcome::Failed(format!("a plan of {width:?} was taken"));
        }
    }
    let sealed = read.clone().sealed();
    let text = match serde_json::to_vec(&sealed) {
        Ok(text) => text,
        Err(error) => {
            return Outcome::Failed(format!("a read certificate cannot be written: {error}"));
        }
    };
    match Certificate::parse(&text, "again") {
        Ok(again) if again != sealed => Outcome::Failed("it reads to another one".to_owned()),
        Ok(again) if !again.is_sealed() => Outcome::Failed("its seal does not hold".to_owned()),
        Ok(_) => Outcome::Held,
        Err(error) => Outcome::Failed(format!("written again it is refused: {error}")),
    }
}

/// Where a clean audit and a visit of every element differ.
fn audited(plan: &Plan, file: &Checkpoint) -> Result<Option<String>, AuditError> {
    let layer = Layer::find(file, layer_shape(plan, false)?, None)?;
    let dump = Dump::find(file, None, None, plan.ranks.len())?;
    let audit = audit_files(plan, &layer, &dump)?;
    let named = diagnose(plan, &layer, &dump, &audit)?;
    if !audit.clean() {
        return Ok(None);
    }
    // Padding of minus zero is clean, and told.
    if let Some(first) = named.iter().find(|d| d.name != "minus-zero-pads") {
        return Ok(Some(format!("clean, and {}", first.name)));
    }
    let shape = layer_shape(plan, false)?;
    let logical = layer.read(0..shape.experts)?;
    for tensor in &dump.tensors {
        let map = map(plan, tensor.role, tensor.rank)?;
        let experts = map.experts.physical_len();
        if experts == 0 {
            continue;
        }
        let stored = dump.read(tensor, map.dtype, 0..experts, experts)?;
        let source = logical_of(&logical, tensor.role).map_or(&[][..], |t| t.bytes());
        let wide = map.grid.bits.max(8) / 8;
        let [_, rows, cols] = map.logical_shape();
        let mut differing = 0;
        for_each(&map, |_, at, place| {
            let Some((e, r, c)) = place else { return };
            let from = ((e * rows + r) * cols + c) * wide;
            let code = map.grid.read(&stored, at).to_le_bytes();
            differing += usize::from(source[from..from + wide] != code[..wide]);
        });
        if differing > 0 {
            let name = &tensor.name;
            return Ok(Some(format!(
                "clean, but {differing} elements of {name} differ"
            )));
        }
    }
    Ok(None)
}

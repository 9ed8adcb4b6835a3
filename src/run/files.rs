//! Holds file entries to what they expect: writes invented files, padded and with a fault, in memory,
//! and audits them as `padproof audit` does.
//!
//! It must not judge bytes. Layer 9.

use super::expect::{Fault, verdict};
use crate::audit::{Audit, Diagnosis, audit_files, diagnose, layer_shape};
use crate::checkpoint::{Checkpoint, Dump, Layer, Output, TensorFile, Whose, header};
use crate::fill::fill;
use crate::layout::{PackedInputs, Pads, logical_of, map, pack_layer, roles, set_pads};
use crate::mutant::{self, Stage, repack};
use crate::plan::{Plan, Role, plan_with};
use crate::property::Verdict;
use crate::rule::Rules;
use crate::suite::{FileEntry, Plant};
use crate::tensor::Logical;
use safetensors::Dtype;
use std::collections::BTreeMap;

/// The name under which file entries are reported, as a property is.
pub const FILE_ENTRY: &str = "file-entry";

/// Invents the entry's checkpoint, pads it by its case's scheme or rule, one of `rules`, plants the fault, and audits the two files.
pub fn hold_file(entry: &FileEntry, rules: &Rules) -> Verdict {
    match faults(entry, rules) {
        Ok((faults, bytes)) => verdict(
            FILE_ENTRY,
            (&entry.name, entry.why.as_deref()),
            &faults,
            bytes,
        ),
        Err(message) => Verdict::Broken(message),
    }
}

/// A file in memory: names, element types, shapes and bytes.
#[derive(Default)]
struct Invented(Vec<(String, Dtype, Vec<usize>, Vec<u8>)>);

impl Invented {
    /// A tensor of elements so wide, in bytes.
    fn add(&mut self, name: String, wide: usize, lead: &[usize], bytes: Vec<u8>) {
        let dtype = match wide {
            1 => Dtype::U8,
            2 => Dtype::U16,
            _ => Dtype::F32,
        };
        let lead_units: usize = lead.iter().product();
        let last = bytes.len() / wide / lead_units.max(1);
        let shape = lead.iter().copied().chain([last]).collect();
        self.0.push((name, dtype, shape, bytes));
    }

    fn open(&self, file: &str) -> Result<Checkpoint, String> {
        let output = |(name, dtype, shape, bytes): &'_ (String, Dtype, Vec<usize>, Vec<u8>)| {
            (name.clone(), *dtype, shape.clone(), bytes.len())
        };
        let all: Vec<_> = self.0.iter().map(output).collect();
        let outputs: Vec<Output<'_>> = all
            .iter()
            .map(|(name, dtype, shape, bytes)| Output {
                name,
                dtype: *dtype,
                shape,
                bytes: u64::try_from(*bytes).unwrap_or(u64::MAX),
            })
            .collect();
        let mut bytes = header(file, &BTreeMap::new(), &outputs).map_err(|e| e.to_string())?;
        for (.., data) in &self.0 {
            bytes.extend_from_slice(data);
        }
        let file = TensorFile::from_bytes(file, bytes).map_err(|e| e.to_string())?;
        Ok(Checkpoint::of_file(file))
    }
}

/// The layer as handed over by hand: `w13` of [experts, rows, columns], and so on.
fn before(plan: &Plan, logical: &Logical) -> Invented {
    let mut file = Invented::default();
    for role in roles(plan) {
        let Some(tensor) = logical_of(logical, role) else {
            continue;
        };
        let nibbles = plan.weight.element().bits() == 4 && matches!(role, Role::W13 | Role::W2);
        let bytes = match nibbles {
            true => {
                let pairs = tensor.bytes().chunks(2);
                pairs
                    .map(|two| two[0] | two.get(1).map_or(0, |high| high << 4))
                    .collect()
            }
            false => tensor.bytes().to_vec(),
        };
        file.add(
            role.name().to_owned(),
            tensor.bits() / 8,
            &tensor.shape()[..2],
            bytes,
        );
    }
    file
}

/// The padded parameters of every rank.
fn after(packed: &PackedInputs) -> Invented {
    let mut file = Invented::default();
    for (rank, inputs) in packed.ranks.iter().enumerate() {
        for (role, tensor) in inputs.iter() {
            let name = format!("rank{rank}.{}", role.name());
            let wide = (tensor.bits() / 8).max(1);
            file.add(name, wide, &[], tensor.bytes().to_vec());
        }
    }
    file
}

fn role_of(name: &str) -> Result<Role, String> {
    let role = Role::ALL.into_iter().find(|role| role.name() == name);
    role.ok_or_else(|| format!("no tensor is called `{name}`"))
}

/// What the entry's loader leaves.
fn planted(entry: &FileEntry, plan: &Plan, logical: &Logical) -> Result<PackedInputs, String> {
    let right = pack_layer(plan, logical).map_err(|e| e.to_string())?;
    let mut packed = right.clone();
    match &entry.plant {
        Plant::Nothing => {}
        Plant::Fault { name, tensors } => {
            let found = mutant::ALL.iter().find(|m| m.name == name);
            let found = found.ok_or_else(|| {
                format!("no fault is called `{name}` (see `padproof list mutants`)")
            })?;
            packed = wrong(found.stage, plan, logical, right.clone())
                .ok_or_else(|| format!("{name} changes nothing here"))?;
            let kept: Vec<Role> = tensors
                .iter()
                .map(|t| role_of(t))
                .collect::<Result<_, _>>()?;
            for (rank, right) in packed.ranks.iter_mut().zip(&right.ranks) {
                for (role, tensor) in right.iter() {
                    if !kept.is_empty() && !kept.contains(&role) {
                        rank.set(role, tensor.clone());
                    }
                }
            }
        }
        Plant::Pads { tensor, code } => {
            let role = role_of(tensor)?;
            for (rank, inputs) in packed.ranks.iter_mut().enumerate() {
                let map = map(plan, role, rank).map_err(|e| e.to_string())?;
                if let Some(tensor) = inputs.get_mut(role) {
                    set_pads(&map, tensor, Pads::Logical, *code);
                }
            }
        }
        Plant::Rows { tensor, order } => reorder(plan, role_of(tensor)?, order, &mut packed)?,
    }
    Ok(packed)
}

/// What a mutant makes of a right packing; none where it changes nothing, or cannot.
fn wrong(
    stage: Stage,
    plan: &Plan,
    logical: &Logical,
    mut packed: PackedInputs,
) -> Option<PackedInputs> {
    let changed = match stage {
        Stage::Layout(change) => return pack_layer(&change(plan)?, logical).ok(),
        Stage::LayoutOf(change, roles) => {
            repack(&change(plan)?, roles, logical, &mut packed);
            true
        }
        Stage::Bytes(change) => change(plan, &mut packed),
        Stage::Plan(change) => {
            let mut wrong = plan.clone();
            change(&mut wrong).then_some(())?;
            return pack_layer(&wrong, logical).ok();
        }
        Stage::Reload(change) => change(plan, logical, &mut packed).ok()?,
        Stage::Output(_) => false,
    };
    changed.then_some(packed)
}

/// Rows of every group in another order.
fn reorder(
    plan: &Plan,
    role: Role,
    order: &[usize],
    packed: &mut PackedInputs,
) -> Result<(), String> {
    for (rank, inputs) in packed.ranks.iter_mut().enumerate() {
        let map = map(plan, role, rank).map_err(|e| e.to_string())?;
        let Some(tensor) = inputs.get_mut(role) else {
            continue;
        };
        let before = tensor.bytes().to_vec();
        let [experts, rows, cols] = map.shape();
        for (e, r) in (0..experts).flat_map(|e| (0..rows).map(move |r| (e, r))) {
            let from = r / order.len() * order.len() + order[r % order.len()];
            if from >= rows {
                return Err(format!("{} rows are no groups of {}", rows, order.len()));
            }
            for c in 0..cols {
                let code = map.grid.read(&before, map.address(e, from, c));
                map.grid
                    .write(tensor.bytes_mut(), map.address(e, r, c), code);
            }
        }
    }
    Ok(())
}

fn faults(entry: &FileEntry, rules: &Rules) -> Result<(Vec<Fault>, u64), String> {
    let plan = plan_with(&entry.case, rules).map_err(|e| e.to_string())?;
    let logical = fill(&entry.case).map_err(|e| e.to_string())?;
    let packed = planted(entry, &plan, &logical)?;
    let before = before(&plan, &logical).open("before.safetensors")?;
    let after = after(&packed).open("after.safetensors")?;
    let shape = layer_shape(&plan, false).map_err(|e| e.to_string())?;
    let layer = Layer::find(&before, shape, None).map_err(|e| e.to_string())?;
    let ranks = plan.ranks.len();
    let look = |rank| {
        let dump = Dump::find(&after, None, rank, ranks).map_err(|e| e.to_string())?;
        let audit = audit_files(&plan, &layer, &dump).map_err(|e| e.to_string())?;
        Ok::<_, String>((dump, audit))
    };
    let (dump, audit) = look(None)?;
    let found = diagnose(&plan, &layer, &dump, &audit).map_err(|e| e.to_string())?;
    let differs = |rank: &usize| look(Some(Whose::Only(*rank))).map(|(_, audit)| !audit.clean());
    let mut differing = Vec::new();
    if entry.expect.ranks.is_some() {
        for rank in 0..ranks {
            if differs(&rank)? {
                differing.push(rank);
            }
        }
    }
    let sizes: BTreeMap<String, u64> = packed
        .ranks
        .first()
        .into_iter()
        .flat_map(|rank| rank.iter())
        .map(|(role, t)| (role.name().to_owned(), t.bytes().len() as u64))
        .collect();
    let faults = differences(entry, (&audit, &found), &differing, &sizes);
    Ok((faults, audit.checked_bytes))
}

/// Every expected figure that differs: where, wanted, actual.
fn differences(
    entry: &FileEntry,
    (audit, found): (&Audit, &[Diagnosis]),
    ranks: &[usize],
    sizes: &BTreeMap<String, u64>,
) -> Vec<Fault> {
    let expect = &entry.expect;
    let mut faults = Vec::new();
    let mut differ = |what: &str, wanted: String, actual: String| {
        if wanted != actual {
            faults.push([what.to_owned(), wanted, actual]);
        }
    };
    let names: Vec<&str> = found.iter().map(|d| d.name).collect();
    let spelled = |clean: bool, names: &[&str]| match (clean, names) {
        (true, []) => "clean".to_owned(),
        (false, []) => "unnamed".to_owned(),
        (_, names) => names.join(", "),
    };
    let wanted: Vec<&str> = expect.names.iter().map(String::as_str).collect();
    let clean = wanted.is_empty() && !expect.unnamed;
    differ(
        "fault",
        spelled(clean, &wanted),
        spelled(audit.clean(), &names),
    );
    if let Some(wanted) = &expect.tensors {
        let actual = found.first().map_or(Vec::new(), |d| d.tensors.clone());
        differ("tensors", format!("{wanted:?}"), format!("{actual:?}"));
    }
    if let Some(wanted) = &expect.ranks {
        differ("ranks", format!("{wanted:?}"), format!("{ranks:?}"));
    }
    for (what, wanted, actual) in [
        ("elements", expect.elements, audit.elements),
        ("pads", expect.pads, audit.pads),
    ] {
        if let Some(wanted) = wanted {
            differ(what, wanted.to_string(), actual.to_string());
        }
    }
    for (tensor, wanted) in &expect.differing {
        let regions = audit.regions.iter().filter(|r| r.tensor == tensor);
        let actual: u64 = regions.map(|r| r.count).sum();
        let what = format!("{tensor} differing");
        differ(&what, wanted.to_string(), actual.to_string());
    }
    for (tensor, wanted) in &expect.bytes {
        let actual = sizes
            .get(tensor)
            .map_or("no such tensor".to_owned(), u64::to_string);
        differ(&format!("{tensor} bytes"), wanted.to_string(), actual);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Tier;

    fn told(more: &str) -> Verdict {
        let text = format!(
            "[suite]\nname = \"s\"\n[[file]]\nname = \"f\"\nline = \"e=2,h=32,i=44,tp=2,w=bf16,pad=i16,order=up-gate,fill=wild\"\n{more}\n"
        );
        let suite = crate::suite::parse(&text, "s.toml").unwrap_or_else(|e| panic!("{e}"));
        hold_file(&suite.files[0], Rules::builtin())
    }

    #[test]
    fn a_right_entry_passes() {
        for right in [
            "",
            "expect = { ranks = [], pads = 3840, elements = 8448, bytes = { w13 = 8192, w2 = 4096 } }",
            "fault = \"halves-swapped\"\nexpect = { name = \"halves-swapped\", ranks = [0, 1], tensors = [] }",
            "fault = \"rank-missing\"\nexpect = { name = \"rank-missing\", ranks = [1] }",
            "pads = { tensor = \"w2\", code = 0x3fc0 }\nexpect = { name = \"w2-tail-dirty\", differing = { w2 = 1280 } }",
        ] {
            assert_eq!(told(right), Verdict::Pass(Tier::Bytes), "{right}");
        }
    }

    #[test]
    fn each_expectation_can_fail() {
        for (wrong, field) in [
            ("fault = \"halves-swapped\"", "fault"),
            ("expect = { name = \"halves-swapped\" }", "fault"),
            (
                "fault = \"halves-swapped\"\nexpect = { name = \"unnamed\" }",
                "fault",
            ),
            ("expect = { ranks = [0] }", "ranks"),
            ("expect = { pads = 1 }", "pads"),
            ("expect = { elements = 1 }", "elements"),
            ("expect = { bytes = { w3 = 1 } }", "w3 bytes"),
            ("expect = { differing = { w2 = 1 } }", "w2 differing"),
            (
                "fault = \"halves-swapped\"\nexpect = { name = \"halves-swapped\", tensors = [\"w2\"] }",
                "tensors",
            ),
        ] {
            let Verdict::Fail(finding) = told(wrong) else {
                panic!("{wrong} must fail");
            };
            assert_eq!(finding.place, field, "{wrong}");
        }
        for broken in [
            "fault = \"nothing-known\"",
            "pads = { tensor = \"w4\", code = 1 }",
            "fault = \"scales-not-cut\"",
            "rows = { tensor = \"w13\", order = [5, 4, 3, 2, 1, 0] }",
        ] {
            assert!(matches!(told(broken), Verdict::Broken(_)), "{broken}");
        }
    }
}

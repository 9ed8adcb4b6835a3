//! Names a wrong scale of a whole tensor, of the second level or the only one, by whose number it is.
//!
//! They are a few numbers, so that every expert is looked at, however large a layer is. It must not read
//! weights. Layer 7.

use super::AuditError;
use super::diagnose::{Diagnosis, Evidence, alone};
use super::files::{experts_of, read, window};
use super::moved::listed;
use super::types::{Audit, Fault};
use crate::checkpoint::{Dump, Layer};
use crate::layout::map;
use crate::mutant::{self, FORMS, Form, is_of_whole_tensors};
use crate::plan::{Plan, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One rank's scales of one role: as they should be, and as they are; gate's and up's of each expert.
struct Scales {
    role: Role,
    rank: usize,
    experts: Range<usize>,
    halves: usize,
    wanted: Vec<f32>,
    held: Vec<f32>,
}

impl Scales {
    /// What a known fault writes in place `n`.
    fn made(&self, (name, form): (&str, Form), n: usize) -> f32 {
        let (held, wanted) = (self.held[n], self.wanted[n]);
        // Rounded once or twice: the checkpoint's own number is one of both.
        if name == "global-not-inverted" && held.recip().to_bits() == wanted.to_bits() {
            return held;
        }
        form(&self.wanted, self.halves, n)
    }
}

/// The names, where no other tensor's elements differ; none else, or where no known fault writes these.
///
/// # Errors
/// When the plan describes no layout, or a file does not hold.
pub(super) fn named(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    let differ = audit.regions.iter().filter(|r| r.fault == Fault::Element);
    let differ: BTreeSet<&str> = differ.map(|r| r.tensor).collect();
    let ours = |name: &&str| {
        let role = Role::ALL.into_iter().find(|role| role.name() == *name);
        role.is_some_and(|role| is_of_whole_tensors(plan, role))
    };
    if differ.is_empty() || !differ.iter().all(ours) {
        return Ok(Vec::new());
    }
    let all = scales(plan, layer, dump)?;
    let (mut whole, mut partial) = (Vec::<Diagnosis>::new(), Vec::new());
    for &(name, form) in FORMS {
        let Some(spared) = fits(&all, (name, form)) else {
            continue;
        };
        let mutant = mutant::ALL.iter().find(|m| m.name == name);
        let mutant = mutant.expect("forms are those of mutants");
        let by = Diagnosis::of(mutant, Evidence::Elements);
        let found = if spared.none() {
            &mut whole
        } else {
            &mut partial
        };
        if found.iter().all(|f| f.name != name) {
            found.push(told(by, &spared, plan, audit));
        }
    }
    // Those that make every scale before those that make some where others are right.
    let mut found = if whole.is_empty() { partial } else { whole };
    if found.is_empty() {
        found.extend(of_others(&all, plan).or_else(|| times(&all, plan)));
    }
    Ok(found)
}

/// Every rank's scales that have their size.
fn scales(plan: &Plan, layer: &Layer<'_>, dump: &Dump<'_>) -> Result<Vec<Scales>, AuditError> {
    let mut all = Vec::new();
    for stored in dump
        .tensors
        .iter()
        .filter(|t| is_of_whole_tensors(plan, t.role))
    {
        let experts = experts_of(plan, stored.rank)?;
        let first = experts.start..experts.start + experts.len().min(1);
        let one = map(&window(plan, &first)?, stored.role, stored.rank)?;
        let Some(source) = layer.role(stored.role, experts.clone(), false)? else {
            continue;
        };
        let Ok(bytes) = read(dump, stored, &one, 0..experts.len(), experts.len()) else {
            continue;
        };
        let halves = one.logical_shape()[1];
        let held: Vec<f32> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect();
        let wanted = source.f32s().to_vec();
        if halves > 0 && one.grid.bits == 32 && held.len() == wanted.len() {
            all.push(Scales {
                role: stored.role,
                rank: stored.rank,
                experts,
                halves,
                wanted,
                held,
            });
        }
    }
    Ok(all)
}

/// What a form would change and the dump has right, and what it makes.
#[derive(Default)]
struct Spared {
    experts: BTreeSet<usize>,
    /// Roles and ranks: wrong ones, and right ones that would be wrong.
    wrong: (BTreeSet<Role>, BTreeSet<usize>),
    right: (BTreeSet<Role>, BTreeSet<usize>),
}

impl Spared {
    /// Whether the form makes every scale of the dump.
    fn none(&self) -> bool {
        self.experts.is_empty() && self.right.0.is_empty()
    }
}

/// Whether a form makes all scales of each expert in which one is wrong.
fn fits(all: &[Scales], form: (&str, Form)) -> Option<Spared> {
    let mut spared = Spared::default();
    for scales in all {
        let (mut wrong, mut right) = (false, BTreeSet::new());
        for e in 0..scales.experts.len() {
            let places = e * scales.halves..(e + 1) * scales.halves;
            let same = |a: &dyn Fn(usize) -> f32, b: &dyn Fn(usize) -> f32| {
                places.clone().all(|n| a(n).to_bits() == b(n).to_bits())
            };
            let (wanted, held) = (&|n| scales.wanted[n], &|n: usize| scales.held[n]);
            let made = &|n| scales.made(form, n);
            match (same(wanted, held), same(wanted, made)) {
                (true, true) => {}
                (true, false) => {
                    right.insert(scales.experts.start + e);
                }
                (false, _) if same(made, held) => wrong = true,
                (false, _) => return None,
            }
        }
        let (roles, ranks) = match (wrong, right.is_empty()) {
            (true, _) => &mut spared.wrong,
            (false, false) => &mut spared.right,
            (false, true) => continue,
        };
        roles.insert(scales.role);
        ranks.insert(scales.rank);
        if wrong {
            spared.experts.extend(right);
        }
    }
    (!spared.wrong.0.is_empty()).then_some(spared)
}

/// A name with the tensors, ranks and experts that show it, where others are right.
fn told(mut found: Diagnosis, spared: &Spared, plan: &Plan, audit: &Audit) -> Diagnosis {
    let all = usize::try_from(plan.dims.e).unwrap_or(usize::MAX);
    found.experts = Some(0..all);
    let (wrong, right) = (&spared.wrong, &spared.right);
    if !right.0.is_empty() {
        found.tensors = wrong.0.iter().map(|role| role.name()).collect();
        if !right.1.is_subset(&wrong.1) {
            found.ranks = wrong.1.iter().copied().collect();
        }
    }
    match spared.experts.is_empty() {
        true => found,
        false => alone(found, plan, audit),
    }
}

/// Numbers that are all another expert's or tensor's of the layer: whose.
fn of_others(all: &[Scales], plan: &Plan) -> Option<Diagnosis> {
    let whose = of_experts(all).or_else(|| of_tensors(all))?;
    let meaning = "scales of whole tensors that are another expert's or tensor's of the layer";
    (!whose.is_empty())
        .then(|| mismatch(plan, meaning, Evidence::Elements, listed(whose.into_iter())))
}

fn mismatch(plan: &Plan, meaning: &'static str, by: Evidence, detail: String) -> Diagnosis {
    Diagnosis {
        name: "global-scale-mismatch",
        meaning,
        source: "no report; this audit's comparison with every such scale of the layer",
        by,
        experts: usize::try_from(plan.dims.e).ok().map(|e| 0..e),
        tensors: Vec::new(),
        ranks: Vec::new(),
        detail,
        sample: String::new(),
    }
}

/// Several numbers that are all what they should be times one factor, to within a rounding of each.
fn times(all: &[Scales], plan: &Plan) -> Option<Diagnosis> {
    let pairs = all.iter().flat_map(|s| s.held.iter().zip(&s.wanted));
    let wrong: Vec<f64> = pairs
        .filter(|(held, wanted)| held.to_bits() != wanted.to_bits())
        .map(|(held, wanted)| f64::from(*held) / f64::from(*wanted))
        .collect();
    let [factor, rest @ ..] = wrong.as_slice() else {
        return None;
    };
    let near = |other: &f64| (other / factor - 1.0).abs() <= 2.0 * f64::from(f32::EPSILON);
    // Scales that were inverted twice are a rounding off, some of them: that is no factor.
    let far = (factor - 1.0).abs() > 4.0 * f64::from(f32::EPSILON);
    let same = far && factor.is_normal() && !rest.is_empty() && rest.iter().all(near);
    let tensors: BTreeSet<&str> = (all.iter())
        .filter(|s| s.held != s.wanted)
        .map(|s| s.role.name())
        .collect();
    let meaning = "scales of whole tensors that are the checkpoint's times one factor";
    let factor = *factor as f32;
    same.then(|| Diagnosis {
        tensors: tensors.into_iter().collect(),
        source: "no report; this audit's quotients of held and planned scales",
        ..mismatch(plan, meaning, Evidence::Values, format!("{factor} times"))
    })
}

/// The same tensor's of other experts, where one expert has all of another's that differ.
fn of_experts(all: &[Scales]) -> Option<BTreeSet<String>> {
    let mut maybe: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for scales in all {
        let of = |values: &[f32], e: usize| -> Vec<u32> {
            let values = &values[e * scales.halves..(e + 1) * scales.halves];
            values.iter().map(|v| v.to_bits()).collect()
        };
        for e in 0..scales.experts.len() {
            let held = of(&scales.held, e);
            if held == of(&scales.wanted, e) {
                continue;
            }
            let same = |f: &usize| of(&scales.wanted, *f) == held;
            let found: BTreeSet<usize> = (0..scales.experts.len())
                .filter(same)
                .map(|f| scales.experts.start + f)
                .collect();
            let place = maybe.entry(scales.experts.start + e);
            let both = place.or_insert_with(|| found.clone());
            both.retain(|f| found.contains(f));
        }
    }
    let told = |(e, all): (&usize, &BTreeSet<usize>)| {
        Some(format!("expert {e} has those of expert {}", all.first()?))
    };
    maybe.iter().map(told).collect()
}

/// Any tensor's: whose each number is.
fn of_tensors(all: &[Scales]) -> Option<BTreeSet<String>> {
    let place = |s: &Scales, n: usize| {
        let half = match (s.halves, n % s.halves) {
            (2, 0) => "gate's of ",
            (2, _) => "up's of ",
            _ => "",
        };
        let (name, e) = (s.role.name(), s.experts.start + n / s.halves);
        format!("{half}{name} of expert {e}")
    };
    let mut whose = BTreeSet::new();
    for scales in all {
        for (n, held) in scales.held.iter().enumerate() {
            if held.to_bits() == scales.wanted[n].to_bits() {
                continue;
            }
            // The same tensor's first.
            let (own, others): (Vec<_>, Vec<_>) =
                all.iter().partition(|other| other.role == scales.role);
            let mut places = own
                .into_iter()
                .chain(others)
                .flat_map(|o| (0..o.wanted.len()).map(move |m| (o, m)));
            let (other, m) = places.find(|(o, m)| o.wanted[*m].to_bits() == held.to_bits())?;
            whose.insert(format!("{} is {}", place(scales, n), place(other, m)));
        }
    }
    Some(whose)
}

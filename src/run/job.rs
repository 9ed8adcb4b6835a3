//! Turns suites into jobs: a case with the properties to ask of it, a plan entry, or a file entry.
//!
//! It must not run them. Layer 9.

use super::{COVERAGE, Filter};
use crate::case::Case;
use crate::property::Property;
use crate::suite::{Expect, FileEntry, PlanEntry, Suite};
use crate::terms::did_you_mean;

/// Where a job comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Full name of the suite entry.
    pub name: String,
    /// The suite's file.
    pub file: String,
    /// Line in the file.
    pub line: usize,
    /// What `padproof run` finds it by: its name, for an entry of a file of the user's behind
    /// the file's.
    pub word: String,
}

/// One thing to run.
pub enum Job {
    /// A case, and the properties asked of it.
    Case {
        /// The case.
        case: Case,
        /// Properties, in the order of reports.
        properties: Vec<&'static Property>,
        /// What must come out.
        expect: Expect,
        /// The suite's number and entry, if it comes from one.
        origin: Option<(usize, Origin)>,
    },
    /// A plan that is held to what its entry expects.
    Plan {
        /// The entry.
        entry: Box<PlanEntry>,
        /// Where it comes from.
        origin: Origin,
    },
    /// An audit of invented files that is held to what its entry expects.
    File {
        /// The entry.
        entry: Box<FileEntry>,
        /// Where it comes from.
        origin: Origin,
    },
}

/// The jobs of the suites, in their order.
///
/// # Errors
/// A property or coverage that does not exist, as a sentence with its place and the nearest name.
pub fn jobs(
    suites: &[Suite],
    chosen: &[&'static Property],
    plans: bool,
    filter: &Filter,
) -> Result<Vec<Job>, String> {
    let mut all = Vec::new();
    for (number, suite) in suites.iter().enumerate() {
        let place = format!("{}:{}: [suite]", suite.file, suite.line);
        covered(suite, &place)?;
        let standard = named(&suite.properties, &place, chosen)?;
        for entry in &suite.cases {
            if !filter.matches(&format!("{:#}", entry.case), Some(&entry.name)) {
                continue;
            }
            let place = format!("{}:{}: entry `{}`", suite.file, entry.line, entry.name);
            let own = named(&entry.properties, &place, chosen)?;
            let properties = if entry.properties.is_empty() {
                standard.clone()
            } else {
                own
            };
            let origin = origin(suite, &entry.name, entry.line);
            all.push(Job::Case {
                case: entry.case.clone(),
                properties,
                expect: entry.expect,
                origin: Some((number, origin)),
            });
        }
        let wanted = |entry: &&PlanEntry| plans && filter.matches(&entry.name, Some(&entry.name));
        all.extend(suite.plans.iter().filter(wanted).map(|entry| Job::Plan {
            entry: Box::new(entry.clone()),
            origin: origin(suite, &entry.name, entry.line),
        }));
        let wanted = |entry: &&FileEntry| plans && filter.matches(&entry.name, Some(&entry.name));
        all.extend(suite.files.iter().filter(wanted).map(|entry| Job::File {
            entry: Box::new(entry.clone()),
            origin: origin(suite, &entry.name, entry.line),
        }));
    }
    Ok(all)
}

fn origin(suite: &Suite, name: &str, line: usize) -> Origin {
    Origin {
        name: name.to_owned(),
        file: suite.file.clone(),
        line,
        word: match suite.shipped {
            true => name.to_owned(),
            // A file's name that begins as an option does.
            false if suite.file.starts_with('-') => format!("./{}::{name}", suite.file),
            false => format!("{}::{name}", suite.file),
        },
    }
}

/// Every name under `[suite.coverage]` is counted.
fn covered(suite: &Suite, place: &str) -> Result<(), String> {
    let known = |name: &&String| COVERAGE.contains(&name.as_str());
    match suite.coverage.keys().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => Err(unknown(place, "coverage", name, COVERAGE)),
    }
}

fn unknown(place: &str, kind: &str, name: &str, known: &[&str]) -> String {
    let hint = did_you_mean(name, known);
    format!(
        "{place}: no {kind} `{name}`{hint}; one of: {}",
        known.join(", ")
    )
}

/// The chosen ones among the named properties; all chosen ones if none is named.
fn named(
    names: &[String],
    place: &str,
    chosen: &[&'static Property],
) -> Result<Vec<&'static Property>, String> {
    for name in names {
        if crate::property::find(name).is_none() {
            let known: Vec<&str> = crate::property::ALL.iter().map(|p| p.name).collect();
            return Err(unknown(place, "property", name, &known));
        }
    }
    let listed = |p: &&&'static Property| names.is_empty() || names.iter().any(|n| n == p.name);
    Ok(chosen.iter().filter(listed).copied().collect())
}

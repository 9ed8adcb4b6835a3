//! Finds what the words of the command line name: suites, entries, files, cases, properties.
//!
//! It must not run anything. Layer 11.

use super::args::Choice;
use super::environment::Environment;
use super::error::CliError;
use super::list::builtin;
use crate::case::Case;
use crate::model::{self, Model, ModelError};
use crate::plan::plan_with;
use crate::property::{ALL, Needs, Property, find};
use crate::rule::Rules;
use crate::subject::SubjectChoice;
use crate::suite::{self, Suite};
use crate::terms::did_you_mean;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

/// Largest file of suites or case lines that is read (bytes).
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The model of an argument: a path, a built-in name or, with the feature `hub`, a repository.
pub(super) fn model(given: &str, environment: &Environment) -> Result<Model, CliError> {
    match model::load(given) {
        Err(error @ ModelError::NoModel { .. }) => {
            let folder = elsewhere(given, error, environment)?;
            Ok(named(given, model::load(&folder)?))
        }
        read => Ok(read?),
    }
}

/// The same, of a config whose layers have different sizes a model for each kind of layer.
pub(super) fn models(given: &str, environment: &Environment) -> Result<Vec<Model>, CliError> {
    match model::load_each(given) {
        Err(error @ ModelError::NoModel { .. }) => {
            let folder = elsewhere(given, error, environment)?;
            let all = model::load_each(&folder)?.into_iter();
            Ok(all.map(|model| named(given, model)).collect())
        }
        read => Ok(read?),
    }
}

/// A model out of a folder that stands for a repository, named as that is; sizes in brackets, which tell kinds of
/// layers apart, stay.
fn named(given: &str, model: Model) -> Model {
    let name = given.rsplit('/').next().unwrap_or(given);
    let kind = model.name.find(" (").map_or("", |at| &model.name[at..]);
    Model {
        name: format!("{name}{kind}"),
        source: given.to_owned(),
        ..model
    }
}

/// The folder of a repository's configuration files.
#[cfg(feature = "hub")]
fn elsewhere(
    given: &str,
    error: ModelError,
    environment: &Environment,
) -> Result<String, CliError> {
    if !super::hub::is_repository(given) {
        return Err(error.into());
    }
    let folder = super::hub::configuration(given, &environment.hub)?;
    Ok(folder.to_string_lossy().into_owned())
}

#[cfg(not(feature = "hub"))]
fn elsewhere(given: &str, error: ModelError, _: &Environment) -> Result<String, CliError> {
    match given.matches('/').count() {
        1 => Err(CliError::Usage(format!(
            "{error}; a build with `--features hub` asks the Hugging Face hub for such names"
        ))),
        _ => Err(error.into()),
    }
}

/// Suites and single cases.
pub(super) struct Selected<'r> {
    /// The rules that cases may name.
    pub(super) rules: &'r Rules,
    pub(super) suites: Vec<Suite>,
    pub(super) cases: Vec<Case>,
    /// Whether some entries of a suite were left out.
    pub(super) partial: bool,
}

impl<'r> Selected<'r> {
    /// Nothing yet, of cases under these rules.
    pub(super) fn under(rules: &'r Rules) -> Self {
        Selected {
            rules,
            suites: Vec::new(),
            cases: Vec::new(),
            partial: false,
        }
    }

    /// Adds what one word names.
    pub(super) fn add(&mut self, word: &str) -> Result<(), CliError> {
        if suite::builtin(word).is_some() {
            self.suites.push(builtin(word)?);
        } else if word == "-" {
            self.add_lines("standard input", &read(std::io::stdin(), "standard input")?)?;
        } else if Path::new(word).exists() {
            self.add_file(Path::new(word))?;
        } else if let Some((file, entry)) = word
            .rsplit_once("::")
            .filter(|(file, _)| suite::builtin(file).is_some() || file.ends_with(".toml"))
        {
            // No case line and no name of an entry holds a colon.
            let found = match suite::builtin(file) {
                Some(_) => builtin(file)?,
                None => suite::parse_with(&open(Path::new(file))?, file, self.rules)?,
            };
            self.add_entries(found, entry)?;
        } else if let Some((name, _)) = word
            .split_once('/')
            .filter(|(name, _)| suite::builtin(name).is_some())
        {
            self.add_entries(builtin(name)?, word)?;
        } else if word.ends_with(".toml") && !word.contains('=') {
            self.add_file(Path::new(word))?;
        } else if word.contains('=') || word.is_empty() {
            self.cases.push(case(word, self.rules)?);
        } else {
            let known: Vec<&str> = suite::BUILTIN.iter().map(|(name, _)| *name).collect();
            let hint = did_you_mean(word, &known);
            return Err(CliError::Usage(format!(
                "`{word}` is no suite, file or case line{hint}; suites: {}",
                known.join(", ")
            )));
        }
        Ok(())
    }

    /// A suite file by its ending, else case lines.
    pub(super) fn add_file(&mut self, path: &Path) -> Result<(), CliError> {
        let (file, text) = (path.display().to_string(), open(path)?);
        if path.extension().is_some_and(|ending| ending == "toml") {
            self.suites
                .push(suite::parse_with(&text, &file, self.rules)?);
            return Ok(());
        }
        self.add_lines(&file, &text)
    }

    fn add_lines(&mut self, file: &str, text: &str) -> Result<(), CliError> {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = case(line, self.rules)
                .map_err(|error| CliError::Usage(format!("{file}:{}: {error}", at + 1)))?;
            self.cases.push(read);
        }
        Ok(())
    }

    /// The entries of a suite whose name, full or without the suite's, is `word` or goes on from it with a
    /// slash.
    fn add_entries(&mut self, mut suite: Suite, word: &str) -> Result<(), CliError> {
        // An entry's name without what a sweep varies: that is what a slip of the hand is near to.
        let short = |full: &String| full.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
        let names: Vec<String> = (suite.cases.iter().map(|e| &e.name))
            .chain(suite.plans.iter().map(|e| &e.name))
            .chain(suite.files.iter().map(|e| &e.name))
            .map(short)
            .collect();
        let word = word.trim_end_matches('/');
        let within = |name: &str| {
            name.strip_prefix(word)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let prefix = format!("{}/", suite.name);
        let inside = |full: &str| within(full) || full.strip_prefix(&prefix).is_some_and(within);
        suite.cases.retain(|entry| inside(&entry.name));
        suite.plans.retain(|entry| inside(&entry.name));
        suite.files.retain(|entry| inside(&entry.name));
        if suite.cases.is_empty() && suite.plans.is_empty() && suite.files.is_empty() {
            let hint = did_you_mean(word, &names);
            let list = if suite.shipped {
                format!("; see `padproof list cases {}`", suite.name)
            } else {
                format!(" ({})", suite.file)
            };
            return Err(CliError::Usage(format!(
                "suite {} has no entry `{word}`{hint}{list}",
                suite.name
            )));
        }
        self.partial = true;
        self.suites.push(suite);
        Ok(())
    }
}

/// The shipped rules, and those of a file beside them.
pub(super) fn rules(file: Option<&Path>) -> Result<Cow<'static, Rules>, CliError> {
    let shipped = Rules::builtin();
    Ok(match file {
        None => Cow::Borrowed(shipped),
        Some(path) => Cow::Owned(shipped.clone().with(Rules::load(path)?)),
    })
}

/// The arguments that bring the rules of a file, behind a space; nothing without one.
pub(super) fn rules_arguments(file: Option<&Path>) -> String {
    file.map_or(String::new(), |path| {
        let word = path.to_string_lossy();
        // A path holds no zero byte, all that cannot be quoted.
        let word = shlex::try_quote(&word).unwrap_or_default();
        format!(" --rules {word}")
    })
}

fn open(path: &Path) -> Result<String, CliError> {
    let file = path.display().to_string();
    match crate::files::open(path) {
        Ok(opened) => read(opened, &file),
        Err(source) => Err(CliError::File { file, source }),
    }
}

fn read(from: impl Read, file: &str) -> Result<String, CliError> {
    let mut text = String::new();
    from.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|source| CliError::File {
            file: file.to_owned(),
            source,
        })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CliError::Usage(format!(
            "{file}: larger than {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

/// A case of one line that can be planned: its rule exists, and its sizes fit 64 bits.
pub(super) fn case(line: &str, rules: &Rules) -> Result<Case, CliError> {
    let case: Case = line.parse()?;
    plan_with(&case, rules)?;
    Ok(case)
}

/// The property of that name, or a sentence with the nearest.
pub(super) fn property(name: &str) -> Result<&'static Property, CliError> {
    let names: Vec<&str> = ALL.iter().map(|p| p.name).collect();
    find(name).ok_or_else(|| unknown("property", name, &names))
}

pub(super) fn unknown(kind: &str, name: &str, known: &[&str]) -> CliError {
    let hint = did_you_mean(name, known);
    CliError::Usage(format!(
        "unknown {kind} `{name}`{hint}; one of: {}",
        known.join(", ")
    ))
}

/// The properties that the list leaves, in the order of reports.
pub(super) fn properties(choice: &Choice) -> Result<Vec<&'static Property>, CliError> {
    let names: Vec<&str> = ALL.iter().map(|p| p.name).collect();
    let named = chosen("property", choice.property.as_deref(), &names)?;
    // Asked only of a subject with two paths, or when named.
    let subject = choice.subject.subject.as_deref().map(str::trim);
    let by_name = choice.property.is_some();
    // What a program tells is heard when it greets.
    let asked = |p: &&Property| match p.needs {
        Needs::Paths => by_name || subject.is_some_and(SubjectChoice::has_paths),
        Needs::Sizes => by_name || subject.is_some_and(|text| !SubjectChoice::is_own(text)),
        Needs::Plan | Needs::Bytes | Needs::Subject => true,
    };
    let left: Vec<&'static Property> = ALL
        .iter()
        .filter(|p| named.contains(&p.name) && asked(p))
        .collect();
    if left.is_empty() {
        return Err(CliError::Usage(
            "no property is left to run; see `padproof list properties`".to_owned(),
        ));
    }
    Ok(left)
}

/// The known names that a list chooses (`a,b`) or does not subtract (`-a,-b`).
fn chosen<'k>(kind: &str, list: Option<&str>, known: &[&'k str]) -> Result<Vec<&'k str>, CliError> {
    let words: Vec<&str> = list
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let minus = words.iter().filter(|word| word.starts_with('-')).count();
    if minus != 0 && minus != words.len() {
        return Err(CliError::Usage(format!(
            "a list of {kind} names chooses or subtracts, not both: {}",
            words.join(",")
        )));
    }
    let names: Vec<&str> = words.iter().map(|w| w.trim_start_matches('-')).collect();
    if let Some(wrong) = names.iter().find(|name| !known.contains(name)) {
        return Err(unknown(kind, wrong, known));
    }
    let keep = |name: &&'k str| match (words.is_empty(), minus > 0) {
        (true, _) => true,
        (false, subtracts) => names.contains(name) != subtracts,
    };
    Ok(known.iter().copied().filter(keep).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<String, String> {
        chosen("property", Some(text), &["one", "two", "three"])
            .map(|names| names.join(" "))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn lists_choose_or_subtract() {
        assert_eq!(list("").as_deref(), Ok("one two three"));
        assert_eq!(list("three,one").as_deref(), Ok("one three"));
        assert_eq!(list("-two").as_deref(), Ok("one three"));
        assert!(list("one,-two").unwrap_err().contains("not both"));
        assert!(list("tow").unwrap_err().contains("did you mean `two`?"));
    }

    #[test]
    fn words_name_suites_entries_and_cases() {
        let mut found = Selected::under(Rules::builtin());
        for word in ["boundary", "smoke/orders", "i=33,w=mxfp4,pad=i32"] {
            found.add(word).unwrap_or_else(|e| panic!("{word}: {e}"));
        }
        assert_eq!((found.suites.len(), found.cases.len()), (2, 1));
        assert_eq!(found.suites[1].cases.len(), 12);
        assert!(found.partial);
        for (word, hint) in [
            ("smok", "`smoke`"),
            ("smoke/order", "`smoke/orders"),
            ("", "empty"),
        ] {
            let error = found.add(word).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}

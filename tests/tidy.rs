//! Reads the source as text and holds it to the rules that no compiler checks.

use padproof::{mutant, property};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules by layer: each may use those above it, never its own line or those below.
const LAYERS: &[&[&str]] = &[
    &["num", "rng", "files"],
    &["terms", "proof"],
    &["model", "rule", "case"],
    &["plan", "tensor"],
    &["fill", "layout", "schedule", "checkpoint"],
    &["reference", "subject"],
    &["compare", "mutant"],
    &["audit"],
    &["property", "gen", "suite", "pad"],
    &["run"],
    &["report"],
    &["cli"],
];

/// (module, what it never uses although its layer would let it, why); unit tests included.
const WALLS: &[(&str, &[&str], &str)] = &[
    (
        "reference",
        &["plan", "layout", "subject", "model", "rule"],
        "a fault in rounding up would cancel itself on both sides",
    ),
    (
        "subject",
        &["reference"],
        "the two sides of a comparison share nothing",
    ),
    (
        "fill",
        &["plan", "layout"],
        "padding must not change the data",
    ),
    (
        "suite",
        &["property", "run"],
        "it reads cases and does not run them",
    ),
    (
        "compare",
        &["plan", "subject", "reference"],
        "a bound comes from the caller",
    ),
];

/// Modules that may use `mutant`: it is wrong on purpose.
const MUTANT_USERS: &[&str] = &["audit", "property", "run", "report", "cli"];

/// Longest file without a reason at its top.
const LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder`, outputs of tools left out, in order.
fn files(folder: &str) -> Vec<PathBuf> {
    fn walk(path: &Path, all: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(path) else {
            return;
        };
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            if ["target", "corpus", "artifacts", "coverage", "__pycache__"].contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                walk(&path, all);
            } else if !name.ends_with(".snap.new") {
                all.push(path);
            }
        }
    }
    let mut all = Vec::new();
    walk(&root().join(folder), &mut all);
    all.sort();
    all
}

fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let rust = |p: &PathBuf| p.extension().is_some_and(|e| e == "rs");
    folders
        .iter()
        .flat_map(|folder| files(folder))
        .filter(rust)
        .map(|path| (shown(&path), text(&path)))
        .collect()
}

fn shown(path: &Path) -> String {
    let relative = path.strip_prefix(root()).expect("below the root");
    relative.to_string_lossy().replace('\\', "/")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The module a source file belongs to: `plan` for `src/plan/split.rs` and `rng` for `src/rng.rs`.
fn module(file: &str) -> &str {
    let rest = file.strip_prefix("src/").expect("a source file");
    rest.split(['/', '.']).next().expect("a first part")
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|line| line.contains(&module))
}

/// (line number, module) of each `crate::module` outside comments.
fn uses(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (n, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or("");
        for after in code.split("crate::").skip(1) {
            let after = after.strip_prefix("r#").unwrap_or(after);
            let name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            found.push((n, after.chars().take_while(name).collect()));
        }
    }
    found
}

/// Files that exist for tests only: `#[cfg(test)] mod x;`.
fn test_files() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (file, text) in sources(&["src"]) {
        let folder = file.rsplit_once('/').expect("below src").0;
        for part in text.split("#[cfg(test)]").skip(1) {
            let line = part.trim_start().lines().next().unwrap_or("");
            if let Some(name) = line.strip_suffix(';').and_then(|l| l.split("mod ").nth(1)) {
                found.insert(format!("{folder}/{name}.rs"));
            }
        }
    }
    found
}

/// The text before the unit tests at its end.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text)
}

#[test]
fn modules_use_only_layers_above_them() {
    let tests = test_files();
    let mut faults = Vec::new();
    for (file, text) in sources(&["src"]) {
        if tests.contains(&file) || ["src/lib.rs", "src/main.rs"].contains(&&*file) {
            continue;
        }
        let own = module(&file);
        let Some(own_layer) = layer(own) else {
            faults.push(format!("{file}: module `{own}` is in no layer"));
            continue;
        };
        for (line, used) in uses(without_tests(&text)) {
            match layer(&used) {
                _ if used == own => {}
                Some(used_layer) if used_layer < own_layer => {}
                Some(used_layer) => faults.push(format!(
                    "{file}:{line}: `{own}` (layer {own_layer}) uses `{used}` (layer {used_layer})"
                )),
                None => faults.push(format!(
                    "{file}:{line}: write `crate::` with a module's name"
                )),
            }
        }
    }
    none(faults);
}

#[test]
fn walls_stand() {
    let mut faults = Vec::new();
    for (file, text) in sources(&["src"]) {
        let own = module(&file);
        for (line, used) in uses(&text) {
            for (walled, never, why) in WALLS {
                if own == *walled && never.contains(&&*used) {
                    faults.push(format!("{file}:{line}: `{own}` uses `{used}`: {why}"));
                }
            }
            if used == "mutant" && own != "mutant" && !MUTANT_USERS.contains(&own) {
                faults.push(format!("{file}:{line}: `{own}` uses `mutant`"));
            }
        }
        let environment = ["env::var", "env::vars", "env::args"];
        if file != "src/cli/environment.rs"
            && file != "src/cli/main.rs"
            && environment.iter().any(|e| text.contains(e))
        {
            faults.push(format!(
                "{file}: the environment is read in cli/environment.rs"
            ));
        }
    }
    none(faults);
}

/// cargo looks for none: one that is named nowhere would not be compiled.
#[test]
fn every_test_file_is_part_of_a_program() {
    let (all, manifest) = (sources(&["tests"]), text(&root().join("Cargo.toml")));
    let texts: BTreeMap<&str, &str> = all.iter().map(|(f, t)| (&**f, &**t)).collect();
    let names = |parent: &str, line: &str| {
        texts
            .get(parent)
            .is_some_and(|text| text.lines().any(|one| one == line))
    };
    let mut faults = Vec::new();
    for (file, _) in &all {
        let name = file.trim_start_matches("tests/").trim_end_matches(".rs");
        let own = |name: &str| manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"));
        let held = match name.split_once('/') {
            None => own(name) || names("tests/all.rs", &format!("mod {name};")),
            Some((folder, "main")) => {
                let path = format!("#[path = \"{folder}/main.rs\"]");
                own(folder) || names("tests/all.rs", &path)
            }
            Some((folder, inner)) => {
                names(&format!("tests/{folder}/main.rs"), &format!("mod {inner};"))
            }
        };
        if !held {
            faults.push(format!("{file}: no program of tests names it"));
        }
    }
    none(faults);
}

#[test]
fn every_file_is_a_module_that_says_its_duty() {
    let all = sources(&["src"]);
    let texts: BTreeMap<&str, &str> = all.iter().map(|(f, t)| (&**f, &**t)).collect();
    let mut faults = Vec::new();
    for (file, text) in &all {
        if !text.starts_with("//! ") {
            faults.push(format!("{file}: no sentence at its top says its duty"));
        }
        if ["src/lib.rs", "src/main.rs"].contains(&&**file) {
            continue;
        }
        let (folder, name) = file.rsplit_once('/').expect("below src");
        let top = name == "mod.rs" || folder == "src";
        let (parent, module_name) = match (name, folder.rsplit_once('/')) {
            ("mod.rs", Some(("src", own))) => ("src/lib.rs".to_owned(), own),
            ("mod.rs", Some((above, own))) => (format!("{above}/mod.rs"), own),
            _ if folder == "src" => ("src/lib.rs".to_owned(), name.trim_end_matches(".rs")),
            _ => (format!("{folder}/mod.rs"), name.trim_end_matches(".rs")),
        };
        let declares = |parent: &str| {
            texts.get(parent).is_some_and(|text| {
                text.contains(&format!("mod {module_name};"))
                    || text.contains(&format!("mod r#{module_name};"))
            })
        };
        // `src/x/y.rs` may also belong to `src/x.rs`.
        let declared = declares(&parent) || declares(&format!("{folder}.rs"));
        if !declared {
            faults.push(format!("{file}: {parent} does not declare it"));
        }
        let nested = folder.matches('/').count() > 1;
        let said = format!("Layer {}", layer(module(file)).unwrap_or(usize::MAX));
        if top
            && !nested
            && !text.contains(&format!("{said}."))
            && !text.contains(&format!("{said};"))
        {
            faults.push(format!("{file}: does not say \"{said}\""));
        }
        if name == "mod.rs" {
            let logic = ["fn ", "struct ", "enum ", "impl ", "static "];
            let codes = text.lines().filter(|l| !l.trim_start().starts_with("//"));
            for line in codes.filter(|l| logic.iter().any(|w| l.contains(w))) {
                faults.push(format!("{file}: logic in mod.rs: {line}"));
            }
        }
    }
    none(faults);
}

#[test]
fn files_are_short_or_say_why_not() {
    let mut faults = Vec::new();
    for (file, text) in sources(&["src", "tests", "benches", "fuzz"]) {
        let lines = text.lines().count();
        let mut head = text.lines().take_while(|l| l.starts_with("//!"));
        if lines >= LINES_MAX && !head.any(|l| l.contains("Long because")) {
            faults.push(format!("{file}: {lines} lines and no `//! Long because …`"));
        }
        if file.starts_with("fuzz/fuzz_targets/") && lines != 2 {
            faults.push(format!("{file}: a fuzz target is two lines"));
        }
    }
    none(faults);
}

#[test]
fn nothing_is_left_over() {
    // Written in two parts, so that this file does not hold what it looks for.
    let banned = [
        (concat!("TO", "DO"), "finish it, or write FIXME(reason)"),
        (concat!("todo", "!("), "finish it"),
        (concat!("#[ig", "nore"), "select long work by budget"),
        (concat!("#[should_", "panic"), "assert today's behaviour"),
        (
            concat!("#[al", "low("),
            "use #[expect(lint, reason = \"…\")]",
        ),
        (
            concat!("#![al", "low("),
            "use #![expect(lint, reason = \"…\")]",
        ),
        (concat!("thread::", "sleep"), "no test waits for a clock"),
    ];
    let mut faults = Vec::new();
    for (file, text) in sources(&["src", "tests", "benches", "fuzz"]) {
        for (n, line) in (1..).zip(text.lines()) {
            for (word, instead) in banned {
                if line.contains(word) {
                    faults.push(format!("{file}:{n}: `{word}`: {instead}"));
                }
            }
        }
    }
    none(faults);
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    let banned = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("local", "host"),
        concat!("crates", ".io"),
        concat!("py", "pi."),
        concat!("hugging", "face.co"),
    ];
    let top = fs::read_dir(root()).expect("a readable root");
    let top = top.map(|e| e.expect("a readable root").path());
    let top = top.filter(|p| {
        p.is_file()
            && p.file_name()
                .is_some_and(|n| n != "Cargo.lock" && n != ".git")
    });
    let folders = [
        ".ci",
        "benches",
        "docs",
        "fuzz",
        "kernels",
        "proofs",
        "python",
        "snapshots",
        "src",
        "tests",
    ];
    let mut faults = Vec::new();
    for path in top.chain(folders.iter().flat_map(|f| files(f))) {
        let bytes = fs::read(&path).expect("a readable file");
        let text = String::from_utf8_lossy(&bytes);
        for (n, line) in (1..).zip(text.lines()) {
            for word in banned.iter().filter(|w| line.contains(**w)) {
                faults.push(format!("{}:{n}: names `{word}`", shown(&path)));
            }
        }
    }
    none(faults);
}

#[test]
fn every_snapshot_is_named_by_a_test() {
    let tests: String = sources(&["src", "tests"])
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let mut faults = Vec::new();
    for path in files("snapshots") {
        let stem = path.file_stem().expect("a name").to_string_lossy();
        // A name made at run time is written `"name@{variant}"` in the source.
        let group = stem.split('@').next().unwrap_or(&stem);
        let named =
            tests.contains(&format!("\"{stem}\"")) || tests.contains(&format!("\"{group}@{{"));
        if !named {
            faults.push(format!("{}: no test names it", shown(&path)));
        }
    }
    none(faults);
}

#[test]
fn every_suite_file_is_shipped() {
    for path in files("tests/suites") {
        let stem = path.file_stem().expect("a name").to_string_lossy();
        assert!(
            padproof::suite::builtin(&stem).is_some(),
            "{}: not in suite::BUILTIN",
            shown(&path)
        );
    }
}

#[test]
fn lists_hold_one_kind_of_name_once() {
    let properties: Vec<&str> = property::ALL.iter().map(|p| p.name).collect();
    let mutants: Vec<&str> = mutant::ALL.iter().map(|m| m.name).collect();
    for list in [&properties, &mutants] {
        let once: BTreeSet<_> = list.iter().collect();
        assert_eq!(once.len(), list.len(), "a name is given twice");
        for name in list {
            let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.chars().all(kebab), "`{name}` is not kebab-case");
        }
    }
    for property in property::ALL {
        let sentence = property.meaning;
        assert!(
            sentence.ends_with('.') && sentence.starts_with(char::is_uppercase),
            "{}: its meaning is no sentence",
            property.name
        );
    }
    for mutant in mutant::ALL {
        for claim in mutant.caught_by {
            assert!(
                properties.contains(claim),
                "{}: `{claim}` is no property",
                mutant.name
            );
        }
    }
}

/// Words in backticks that open a row of a table.
fn first_column(text: &str) -> Vec<&str> {
    let rows = text.lines().filter_map(|l| l.strip_prefix("| `"));
    rows.filter_map(|l| l.split('`').next()).collect()
}

#[test]
fn pages_list_what_there_is() {
    let page = text(&root().join("ARCHITECTURE.md"));
    for (n, line) in LAYERS.iter().enumerate() {
        for module in *line {
            let built = root().join("src").join(module).exists()
                || root().join("src").join(format!("{module}.rs")).exists();
            let row = format!("| {n} | `{module}` |");
            assert_eq!(page.contains(&row), built, "ARCHITECTURE.md: {row}");
        }
    }
    let readme = fs::read_to_string(root().join("README.md")).unwrap_or_default();
    let names = first_column(&readme);
    let listed = |name: &str| names.contains(&name);
    if property::ALL.iter().any(|p| listed(p.name)) {
        for property in property::ALL {
            assert!(
                listed(property.name),
                "README.md leaves out {}",
                property.name
            );
        }
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(PathBuf::from)
        .into_iter()
        .map(|p| root().join(p))
        .chain(files("docs"))
        .chain(["fuzz/README.md", "benches/README.md"].map(|p| root().join(p)));
    let mut faults = Vec::new();
    for page in pages.filter(|p| p.exists()) {
        let folder = page.parent().expect("a folder");
        for link in text(&page).split("](").skip(1) {
            let link = link.split([')', '#']).next().unwrap_or("");
            if !link.is_empty() && !link.contains("://") && !folder.join(link).exists() {
                faults.push(format!("{}: {link} does not exist", shown(&page)));
            }
        }
    }
    none(faults);
}

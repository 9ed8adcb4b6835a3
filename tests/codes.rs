//! Goal: every code a plan can print has a page, and every page says what the program does.
//! Method: codes are read from the source of `plan`, pages from `docs/codes`, and each page's
//! example is run.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use padproof::mutant;
use padproof::report::{CODES, cited_rows, fault_words};
use padproof::rule::Rules;
use padproof::terms::CODES as CODE_WORDS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Codes that the planner's own source spells, its unit tests left out.
fn emitted() -> BTreeSet<String> {
    let files = fs::read_dir(root().join("src/plan")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let sources = paths.filter(|path| !path.to_str().unwrap().ends_with("_tests.rs"));
    let texts = sources.map(|path| fs::read_to_string(path).unwrap());
    let mut codes = BTreeSet::new();
    for text in texts {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for part in code.split("\"PP").skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            if digits.len() == 3 && part[3..].starts_with('"') {
                codes.insert(format!("PP{digits}"));
            }
        }
    }
    codes
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let paged: BTreeSet<String> = CODES.iter().map(|page| page.code.to_owned()).collect();
    let hint = "write docs/codes/CODE.md and name it in src/report/codes.rs";
    assert!(emitted().len() >= 18);
    assert_eq!(emitted(), paged, "{hint}");
    let named: BTreeSet<String> = CODE_WORDS.iter().map(|code| (*code).to_owned()).collect();
    assert_eq!(named, paged, "name it in src/terms.rs");
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("docs/codes"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|path| path.file_name().unwrap() != "README.md");
    let files: BTreeSet<String> = files
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(files, paged, "{hint}");
}

#[test]
fn the_index_lists_every_page_as_it_calls_itself() {
    let index = fs::read_to_string(root().join("docs/codes/README.md")).unwrap();
    let row = |page: &padproof::report::CodePage| {
        let (code, title, verdict) = (page.code, page.title(), page.verdict());
        format!("| [{code}]({code}.md) | {title} | {verdict} |")
    };
    let wanted: Vec<String> = CODES.iter().map(row).collect();
    let rows: Vec<&str> = index.lines().filter(|l| l.starts_with("| [")).collect();
    assert_eq!(rows, wanted);
}

/// Words in backticks or quotes.
fn words(text: &str, mark: char) -> BTreeSet<String> {
    let word = |w: &&str| !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let all = text.split(mark).skip(1).step_by(2);
    all.filter(word).map(str::to_owned).collect()
}

#[test]
fn every_word_of_audit_and_verify_is_explained() {
    let explained: BTreeSet<String> = fault_words().map(str::to_owned).collect();
    let source = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let verify = source("src/pad/verify.rs");
    let said = verify.split("One of a few words:").nth(1).unwrap();
    let kinds = words(said.split("pub kind").next().unwrap(), '`');
    assert!(kinds.len() >= 9, "{kinds:?}");
    assert!(kinds.is_subset(&explained), "{kinds:?}");
    // Names that are no mutant's are spelled in these.
    for (path, name) in [
        ("src/audit/values.rs", "requantised"),
        ("src/audit/values.rs", "rearranged"),
        ("src/audit/dirt.rs", "minus-zero-pads"),
        ("src/audit/moved.rs", "ranks-exchanged"),
        ("src/audit/moved.rs", "channels-shifted"),
        ("src/audit/others.rs", "experts-exchanged"),
        ("src/audit/others.rs", "layers-exchanged"),
        ("src/audit/globals.rs", "global-scale-mismatch"),
    ] {
        assert!(
            source(path).contains(&format!("\"{name}\"")),
            "{path}: {name}"
        );
        assert!(explained.contains(name), "{name}");
    }
    // Where only places tell, the name is a mutant's.
    let names: BTreeSet<String> = mutant::ALL.iter().map(|m| m.name.to_owned()).collect();
    let dirt = source("src/audit/dirt.rs");
    let by_place = dirt.split("let name = match").nth(1).unwrap();
    let by_place = words(by_place.split("of_mutant(").next().unwrap(), '"');
    let hyphened = by_place.iter().filter(|w| w.contains('-'));
    assert!(hyphened.clone().count() >= 6, "{by_place:?}");
    assert!(hyphened.clone().all(|w| names.contains(w)), "{by_place:?}");
}

/// A page's console block.
struct Example<'a> {
    set: Vec<(&'a str, &'a str)>,
    args: Vec<&'a str>,
    lines: Vec<&'a str>,
}

fn example(text: &str) -> Option<Example<'_>> {
    let block = text.split("```console\n").nth(1)?.split("```").next()?;
    let mut lines = block.lines();
    let words: Vec<&str> = lines.next()?.strip_prefix("$ ")?.split(' ').collect();
    let at = words.iter().position(|word| *word == "padproof")?;
    let set = words[..at].iter().filter_map(|w| w.split_once('='));
    Some(Example {
        set: set.collect(),
        args: words[at + 1..].to_vec(),
        lines: lines.collect(),
    })
}

#[test]
fn each_example_prints_what_its_page_shows() {
    let mut ran = 0;
    for page in CODES {
        let Some(Example { set, args, lines }) = example(page.text) else {
            continue;
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_padproof"));
        command
            .env_remove("SGLANG_MOE_PADDING")
            .env("NO_COLOR", "1");
        let out = command.envs(set).args(&args).output().unwrap();
        let printed = String::from_utf8(out.stdout).unwrap();
        assert!(!lines.is_empty(), "{}: shows nothing", page.code);
        assert!(
            lines[0].starts_with(page.code),
            "{}: another code",
            page.code
        );
        for line in lines {
            assert!(
                printed.contains(line),
                "{}: no `{line}` in\n{printed}",
                page.code
            );
        }
        ran += 1;
    }
    assert!(ran >= 16, "{ran} examples");
}

/// `facts/` is no folder of the repository: whoever reads a citation must find what it stands for.
#[test]
fn every_row_that_is_cited_is_explained_with_its_public_source() {
    let sources = Rules::builtin().iter().map(|rule| rule.source.as_str());
    let sources = sources.chain(mutant::ALL.iter().map(|one| one.source));
    let (mut checked, mut missing) = (0, Vec::new());
    for source in sources.filter(|source| source.contains("facts/")) {
        let words = source.split(|c: char| !c.is_ascii_alphanumeric());
        for word in words {
            let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
            let known = ["S", "A", "V", "F", "AI", "T", "D", "K", "H", "B"].contains(&letters);
            if known && letters.len() < word.len() {
                checked += 1;
                if cited_rows(word).is_empty() {
                    missing.push(format!("{source}: {word}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(checked > 200, "{checked}");
    let heads: Vec<&str> = cited_rows("f5").iter().map(|(head, _)| *head).collect();
    assert_eq!(heads.len(), 2, "{heads:?}");
}

#[test]
fn the_page_of_tables_names_every_unit_and_part() {
    use padproof::plan::Unit;
    use padproof::terms::LayerKind;
    let page = fs::read_to_string(root().join("docs/plan-tables.md")).unwrap();
    let units = [
        Unit::Elements,
        Unit::Bytes,
        Unit::Stored,
        Unit::Bits,
        Unit::Blocks,
        Unit::Ranks,
        Unit::Experts,
        Unit::Tokens,
        Unit::Versions,
    ];
    let words = units.map(|unit| serde_json::to_value(unit).unwrap());
    let words = words.iter().map(|word| word.as_str().unwrap());
    for word in words.chain(LayerKind::ALL.iter().map(|kind| kind.name())) {
        assert!(page.contains(&format!("`{word}`")), "{word}");
    }
}

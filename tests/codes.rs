//! Goal: every code a plan can print has a page, and every page says what the program does.
//! Method: codes are read from the source of `plan`, pages from `docs/codes`, and each page's
//! example is run.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use padproof::report::CODES;
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
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
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

//! Holds the page of each finding code, and writes it for people.
//!
//! It must not decide what a plan finds. Layer 10.

use super::style::heading;
use std::io::{self, Write};

/// One finding code and its page, `docs/codes/CODE.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodePage {
    /// The code, `PP101` and on.
    pub code: &'static str,
    /// The page, in Markdown.
    pub text: &'static str,
}

macro_rules! pages {
    ($($code:literal),+ $(,)?) => {
        /// Every page, in the order of the codes.
        pub const CODES: &[CodePage] = &[$(CodePage {
            code: $code,
            text: include_str!(concat!("../../docs/codes/", $code, ".md")),
        }),+];
    };
}

pages![
    "PP101", "PP102", "PP103", "PP104", "PP105", "PP106", "PP109", "PP110", "PP111", "PP114",
    "PP115", "PP116", "PP117", "PP118", "PP119", "PP120", "PP121", "PP122", "PP123", "PP124",
    "PP125", "PP126", "PP127", "PP128", "PP129", "PP130", "PP131", "PP132", "PP133", "PP134",
    "PP135", "PP136", "PP137", "PP138",
];

impl CodePage {
    /// The page of a code; case does not matter, and `PP` may be left out.
    pub fn find(word: &str) -> Option<&'static CodePage> {
        let word = word.to_ascii_uppercase();
        let digits = word.strip_prefix("PP").unwrap_or(&word);
        CODES
            .iter()
            .find(|page| page.code.strip_prefix("PP") == Some(digits))
    }

    /// What the code says, in a few words.
    pub fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.split_once(": ").map_or(first, |(_, title)| title)
    }

    /// What the code makes of a plan: the word after `Verdict: `.
    pub fn verdict(&self) -> &'static str {
        let mut lines = self.text.lines();
        let found = lines.find_map(|line| line.strip_prefix("Verdict: "));
        found.map_or("", |word| word.trim_end_matches('.'))
    }
}

/// The words of `audit` and `verify`, a section each.
const FAULTS: &str = include_str!("../../docs/faults.md");

/// The words that have a section.
pub fn fault_words() -> impl Iterator<Item = &'static str> {
    FAULTS.lines().filter_map(|line| line.strip_prefix("## "))
}

/// The section of a word, without its heading.
pub fn fault_section(word: &str) -> Option<&'static str> {
    let mut sections = FAULTS.split("\n## ").skip(1);
    sections.find_map(|text| text.strip_prefix(word)?.strip_prefix("\n\n"))
}

/// What the citations in rules, models and messages stand for, with the public sources.
pub const SOURCES: &str = include_str!("../../docs/sources.md");

/// What says where a citation is explained.
pub const CITED: &str = "what facts/ names: padproof explain facts";

/// What the rows that a citation names stand for, each after the heading that it stands under.
pub fn cited_rows(row: &str) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    // Not the words of the tables' heads.
    if !row.chars().any(|c| c.is_ascii_digit()) {
        return found;
    }
    for section in SOURCES.split("\n## ").skip(1) {
        let head = section.lines().next().unwrap_or_default();
        let rows = section
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let mut rows = rows.filter_map(|line| line.split_once(" | "));
        let same = |(name, _): &(&str, &str)| name.split(", ").any(|one| stands_for(one, row));
        found.extend(rows.find(same).map(|(_, what)| (head, what)));
    }
    found
}

/// Whether a row's name is the one asked for, or a range of numbers that holds it: `1.1 to 1.7`.
fn stands_for(name: &str, row: &str) -> bool {
    let number = |text: &str| -> Option<(u32, u32)> {
        let (part, section) = text.split_once('.')?;
        Some((part.parse().ok()?, section.parse().ok()?))
    };
    match name.split_once(" to ") {
        None => name.eq_ignore_ascii_case(row),
        Some((first, last)) => match (number(first), number(row), number(last)) {
            (Some(first), Some(row), Some(last)) => (first..=last).contains(&row),
            _ => false,
        },
    }
}

/// What is said of a note as a whole: `facts/reports.md`.
pub fn cited_note(note: &str) -> Option<&'static str> {
    let mut sections = SOURCES.split("\n## ").skip(1);
    sections.find(|section| {
        section
            .strip_prefix(note)
            .is_some_and(|rest| rest.starts_with(':'))
    })
}

/// The words of a case line, a table for each key.
const CASE_LINE: &str = include_str!("../../docs/case-line.md");

/// Every key's table: its words, and what each means.
fn case_rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let sections = CASE_LINE.split("\n## ").skip(1);
    sections.flat_map(|section| {
        let key = section.split('`').nth(1).unwrap_or_default();
        section.lines().filter_map(move |line| {
            let (word, what) = line.strip_prefix("| `")?.split_once("` | ")?;
            Some((key, word, what.strip_suffix(" |")?))
        })
    })
}

/// The keys that have a word, and what it means there.
pub fn case_words(word: &str) -> Vec<(&'static str, &'static str)> {
    let own = case_rows().filter(|(_, known, _)| *known == word);
    own.map(|(key, _, what)| (key, what)).collect()
}

/// Every word of every key.
pub fn all_case_words() -> impl Iterator<Item = &'static str> {
    case_rows().map(|(_, word, _)| word)
}

/// The words of a plan's verdict, a section each.
const VERDICTS: &str = include_str!("../../docs/verdicts.md");

/// The section of a verdict's word, and what stands before all of them.
pub fn verdict_section(word: &str) -> Option<(&'static str, &'static str)> {
    let (head, _) = VERDICTS.split_once("\n## ")?;
    let (_, about) = head.split_once("\n\n")?;
    let mut sections = VERDICTS.split("\n## ").skip(1);
    let section = sections.find_map(|text| text.strip_prefix(word)?.strip_prefix("\n\n"))?;
    Some((section, about))
}

/// Writes a page as text: headings painted, Markdown's marks left out, examples indented.
///
/// # Errors
/// Those of the stream.
pub fn page_human(page: &CodePage, out: &mut dyn Write) -> io::Result<()> {
    let mut example = false;
    for line in page.text.lines() {
        if line.starts_with("```") {
            example = !example;
        } else if example {
            writeln!(out, "  {line}")?;
        } else if let Some(title) = line.strip_prefix("# ").or(line.strip_prefix("## ")) {
            writeln!(out, "{}", heading(title))?;
        } else {
            writeln!(out, "{}", line.replace('`', ""))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_the_same_parts() {
        for page in CODES {
            let title = format!("# {}: {}\n", page.code, page.title());
            assert!(page.text.starts_with(&title), "{}: title", page.code);
            assert!(!page.verdict().is_empty(), "{}: verdict", page.code);
            let heads: Vec<&str> = page.text.lines().filter(|l| l.starts_with("## ")).collect();
            let wanted = [
                "## What it means",
                "## Why it breaks",
                "## Example",
                "## What to do",
            ];
            assert_eq!(heads, wanted, "{}", page.code);
            let long = page.text.lines().find(|l| l.chars().count() > 110);
            assert_eq!(long, None, "{}: a line is too long", page.code);
        }
        assert!(CODES.is_sorted_by_key(|page| page.code));
    }

    #[test]
    fn every_word_of_an_audit_has_a_section() {
        for word in fault_words() {
            assert!(
                fault_section(word).is_some_and(|text| text.len() > 40),
                "{word}"
            );
        }
        for fault in crate::audit::Fault::ALL {
            assert!(fault_section(fault.word()).is_some(), "{}", fault.word());
        }
        assert_eq!(fault_section("elem"), None);
    }

    #[test]
    fn every_verdict_has_a_section_worst_first() {
        let fits = crate::plan::Fit::ALL;
        assert!(fits.is_sorted_by(|a, b| a > b));
        let heads = VERDICTS.lines().filter_map(|l| l.strip_prefix("## "));
        assert!(heads.eq(fits.iter().map(|fit| fit.name())));
        for fit in fits {
            let (section, about) = verdict_section(fit.name()).unwrap();
            assert!(section.len() > 40 && about.contains("exit code 1"));
        }
        let order = fits.map(|fit| format!("`{}`", fit.name())).join(", ");
        assert!(include_str!("../../docs/rule-file.md").contains(&order));
        assert_eq!(verdict_section("fit"), None);
    }

    #[test]
    fn codes_are_found_however_they_are_written() {
        for word in ["PP103", "pp103", "103"] {
            assert_eq!(CodePage::find(word).map(|p| p.code), Some("PP103"));
        }
        assert_eq!(CodePage::find("PP"), None);
        assert_eq!(CodePage::find("PPPP103"), None);
    }

    #[test]
    fn pages_are_written_without_marks() {
        let mut out = Vec::new();
        page_human(CodePage::find("PP110").unwrap(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            !text.contains('`') && text.contains("  $ padproof show"),
            "{text}"
        );
    }
}

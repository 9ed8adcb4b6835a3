//! Writes one finding as the block that every failure prints (style.md A.11).
//!
//! It must not choose which findings are shown. Layer 10.

use super::style::kind_word;
use super::words::thousands;
use crate::property::{Finding, Verdict};
use crate::run::{Finished, Kind};
use crate::terms::plain;
use std::io::{self, Write};

/// Writes the block of a failing or broken check; with `full`, the derivation of its bound and
/// the first differing elements too, and with `keep`, how to keep the case.
///
/// # Errors
/// Those of the stream.
pub fn finding_block(
    finished: &Finished,
    full: bool,
    keep: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let word = kind_word(Kind::of(&finished.verdict), 0);
    let case = match &finished.verdict {
        Verdict::Fail(finding) => finding.case.as_str(),
        _ => finished.case.as_str(),
    };
    writeln!(
        out,
        "{word} {}  {}  {case}",
        finished.property, finished.subject
    )?;
    match &finished.verdict {
        Verdict::Fail(finding) => evidence(finding, full, out)?,
        Verdict::Broken(why) => writeln!(out, "  {}", plain(why))?,
        Verdict::Skip(reason) => writeln!(out, "  {reason}")?,
        Verdict::Vacuous(reason) => writeln!(out, "  {}", reason.reason())?,
        Verdict::Pass(tier) => writeln!(out, "  {}", tier.name())?,
    }
    if case != finished.case {
        writeln!(out, "  from: {}", finished.case)?;
    }
    if let Some((file, line)) = &finished.place {
        let name = finished.name.as_deref().unwrap_or_default();
        writeln!(out, "  entry: {name} ({}:{line})", plain(file))?;
    }
    writeln!(out, "  repro: {}", finished.repro())?;
    if keep && matches!(finished.verdict, Verdict::Fail(_)) && finished.place.is_none() {
        writeln!(out, "  keep: add the case to tests/suites/regressions.toml")?;
    }
    Ok(())
}

fn evidence(finding: &Finding, full: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {}", sentence(finding))?;
    let note = finding.note.as_ref().map(|n| plain(n));
    // What happened instead of an answer is no difference to count.
    let differ = (finding.total > 0).then(|| {
        let [differing, total] = [finding.differing, finding.total].map(thousands);
        format!("{differing} of {total} differ")
    });
    let parts: Vec<String> = differ.into_iter().chain(note).collect();
    if !parts.is_empty() {
        writeln!(out, "  {}", parts.join("; "))?;
    }
    if full {
        for line in &finding.first {
            writeln!(out, "    {}", plain(line))?;
        }
        if !finding.derivation.is_empty() {
            writeln!(out, "  derivation: {}", finding.derivation)?;
        }
    }
    Ok(())
}

/// Where, wanted, actual and bound in one line, whatever a suite's texts hold.
pub(super) fn sentence(finding: &Finding) -> String {
    if finding.wanted.is_empty() {
        // What happened is the finding, and not a value.
        let said = format!(
            "{} {}; see {}",
            finding.place, finding.actual, finding.bound
        );
        return plain(&said);
    }
    plain(&format!(
        "{} wanted {}, got {}; bound: {}",
        finding.place, finding.wanted, finding.actual, finding.bound
    ))
}

//! Writes an audit of files for people.
//!
//! It must not decide anything. Layer 10.

use super::style::kind_word;
use super::words::{plural, thousands};
use crate::audit::Audited;
use crate::run::Kind;
use crate::terms::plain;
use std::io::{self, Write};

/// Width of the first column.
const WORD: usize = 9;

/// Writes what was audited, the verdict, and the fault with its first places.
///
/// # Errors
/// Those of the stream.
pub fn audit_human(audited: &Audited, out: &mut dyn Write) -> io::Result<()> {
    let audit = &audited.audit;
    let prefix = plain(&audited.prefix);
    let place = match (prefix.trim_end_matches('.'), audited.layer) {
        ("", _) => "one layer".to_owned(),
        (prefix, _) => prefix.to_owned(),
    };
    writeln!(
        out,
        "{:WORD$}{place} under {}, tp {}{}, {}",
        "audit",
        plain(&audited.rule),
        audited.tp,
        match audited.ep {
            1 => String::new(),
            ep => format!(", ep {ep}"),
        },
        ranks(&audited.ranks),
    )?;
    for note in &audited.notes {
        writeln!(out, "{:WORD$}{}", "note", plain(note))?;
    }
    let kind = if audit.clean() {
        Kind::Pass
    } else {
        Kind::Fail
    };
    write!(
        out,
        "{}{}: {}, {}",
        kind_word(kind, WORD),
        plural(audit.checked_bytes, "byte"),
        plural(audit.elements, "element"),
        plural(audit.pads, "pad"),
    )?;
    if audit.minus_zero_pads > 0 {
        write!(out, " ({} minus zero)", thousands(audit.minus_zero_pads))?;
    }
    if audit.clean() {
        return writeln!(out, "; every element is in its place, every pad inert");
    }
    let places = plural(audit.differing, "place");
    let verb = if audit.differing == 1 {
        "differs"
    } else {
        "differ"
    };
    writeln!(out, "; {places} {verb}")?;
    for region in &audit.regions {
        let count = thousands(region.count);
        writeln!(out, "  {:12} {count:>12}  {}", region.tensor, region.fault)?;
    }
    for difference in &audit.first {
        writeln!(out, "  {difference}")?;
    }
    fault(audited, out)
}

fn fault(audited: &Audited, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = audited.diagnoses.first() else {
        return writeln!(
            out,
            "{:WORD$}not named: no known fault makes these bytes; the places above are where they begin",
            "fault"
        );
    };
    writeln!(out, "{:WORD$}{}: {}", "fault", first.name, first.meaning)?;
    match &first.experts {
        Some(experts) if experts.len() == 1 => {
            writeln!(out, "  it explains every byte of expert {}", experts.start)?;
        }
        Some(experts) => writeln!(
            out,
            "  it explains every byte of experts {} to {}",
            experts.start,
            experts.end - 1
        )?,
        None => writeln!(
            out,
            "  told by where the dirt lies; no known fault leaves these values"
        )?,
    }
    writeln!(out, "  known from {}", first.source)?;
    for other in &audited.diagnoses[1..] {
        writeln!(out, "  the same bytes: {}: {}", other.name, other.meaning)?;
    }
    Ok(())
}

fn ranks(ranks: &[usize]) -> String {
    match ranks {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        [first, .., last] if last - first + 1 == ranks.len() => format!("ranks {first} to {last}"),
        several => {
            let several: Vec<String> = several.iter().map(usize::to_string).collect();
            format!("ranks {}", several.join(", "))
        }
    }
}

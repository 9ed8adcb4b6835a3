//! Writes an audit of files for people.
//!
//! It must not decide anything. Layer 10.

use super::style::kind_word;
use super::words::{plural, thousands};
use crate::audit::{Audit, Audited, Diagnosis, Evidence, Fault};
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
        writeln!(out, "; every element is in its place, every pad inert")?;
        let mut told = audited.diagnoses.iter();
        return told.try_for_each(|found| named("note", found, out));
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
            "{:WORD$}not named: {}",
            "fault",
            unnamed(&audited.audit)
        );
    };
    named("fault", first, out)?;
    let (same, besides): (Vec<_>, Vec<_>) = audited.diagnoses[1..].iter().partition(|other| {
        let alike = elements(other) && elements(first) || other.by == first.by;
        // Of other tensors it is a fault of its own.
        alike && other.tensors == first.tensors
    });
    for other in same {
        writeln!(
            out,
            "  the same elements: {}: {}",
            other.name, other.meaning
        )?;
    }
    for other in besides {
        named("besides", other, out)?;
    }
    writeln!(out, "what a name means: padproof explain {}", first.name)
}

/// Whether a name rests on elements.
fn elements(found: &Diagnosis) -> bool {
    matches!(found.by, Evidence::Elements | Evidence::Ends)
}

/// Why there is no name: what was compared and is not known, and what could not be compared.
fn unnamed(audit: &Audit) -> String {
    let of = |faults: &[Fault]| -> Vec<&str> {
        let regions = audit.regions.iter();
        let those = regions.filter(|r| faults.contains(&r.fault));
        those.map(|r| r.tensor).collect()
    };
    let mut told = Vec::new();
    if audit.regions.iter().any(|r| r.fault == Fault::Element) {
        told.push("no known fault makes these elements".to_owned());
    }
    for fault in [Fault::Missing, Fault::Size, Fault::Extra] {
        let names = of(&[fault]);
        let (verb, whose) = match names.len() {
            0 => continue,
            1 => ("is", "its"),
            _ => ("are", "their"),
        };
        let what = match fault {
            Fault::Missing => "missing".to_owned(),
            Fault::Extra => "not in the plan".to_owned(),
            _ => format!("of another size, and none of {whose} elements was compared"),
        };
        told.push(format!("{} {verb} {what}", names.join(" and ")));
    }
    if told.is_empty() {
        told.push("no known fault leaves such padding".to_owned());
    }
    format!("{}; the places above are where it begins", told.join("; "))
}

/// A name, what it rests on, and where it is known from.
fn named(word: &str, found: &Diagnosis, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{word:WORD$}{}: {}", found.name, found.meaning)?;
    let experts = match &found.experts {
        Some(experts) if experts.len() == 1 => format!(" of expert {}", experts.start),
        Some(experts) => format!(" of experts {} to {}", experts.start, experts.end - 1),
        None => String::new(),
    };
    let sampled = match found.sample.as_str() {
        "" => "",
        _ => " of a sample",
    };
    match found.by {
        Evidence::Elements => writeln!(out, "  it explains every element{sampled}{experts}")?,
        Evidence::Ends => writeln!(
            out,
            "  told by every element{sampled} of the first and the last expert of each rank"
        )?,
        Evidence::Values => writeln!(out, "  told by the values{experts}")?,
        Evidence::Counts => writeln!(out, "  told by how often each code is there,{experts}")?,
        Evidence::Sizes => writeln!(out, "  told by the number of bytes")?,
        Evidence::Places => writeln!(out, "  told by where the padding differs, and how")?,
    }
    let of = match found.ranks.as_slice() {
        [] => String::new(),
        some => format!(" of {}", ranks(some)),
    };
    if !found.tensors.is_empty() {
        writeln!(out, "  in {}{of} alone", found.tensors.join(" and "))?;
    }
    if !found.sample.is_empty() {
        writeln!(out, "  told by a sample: {}", found.sample)?;
    }
    if !found.detail.is_empty() {
        writeln!(out, "  {}", found.detail)?;
    }
    writeln!(out, "  known from {}", found.source)
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

//! Writes what a padding made, and what a check of one found, for people.
//!
//! It must not decide anything. Layer 10.

use super::style::kind_word;
use super::words::{plural, thousands};
use crate::pad::{Certificate, Padded, Part, Verified};
use crate::run::Kind;
use crate::terms::plain;
use std::io::{self, Write};
use std::path::Path;

/// Width of the first column.
const WORD: usize = 14;

/// Writes what became of the sizes, the files and the checks.
///
/// # Errors
/// Those of the stream.
pub fn padded_human(padded: &Padded, out: &Path, to: &mut dyn Write) -> io::Result<()> {
    let certificate = &padded.certificate;
    let place = out.display().to_string();
    writeln!(to, "{:WORD$}{}", "padded", plain(&place))?;
    sizes(certificate, to)?;
    let changed = certificate
        .tensors
        .iter()
        .filter(|t| t.output.is_some())
        .count();
    let (all, changed) = (certificate.tensors.len() as u64, changed as u64);
    writeln!(
        to,
        "{:WORD$}{} padded, {} as they were",
        "tensors",
        thousands(changed),
        thousands(all - changed)
    )?;
    let same = match padded.linked {
        0 => "",
        _ => " (the same in both folders)",
    };
    let mut files = format!(
        "{} written, {} linked{same}, {} copied or rewritten",
        plural(padded.written as u64, "file"),
        padded.linked,
        certificate.files.len()
    );
    if padded.resumed > 0 {
        files += &format!("; {} of them by an earlier run", padded.resumed);
    }
    writeln!(to, "{:WORD$}{files}", "files")?;
    writeln!(
        to,
        "{:WORD$}{} before, {} after",
        "bytes",
        thousands(padded.bytes_before),
        thousands(padded.bytes_after)
    )?;
    checks(certificate, to)?;
    for note in &padded.notes {
        writeln!(to, "{:WORD$}{}", "note", plain(note))?;
    }
    Ok(())
}

fn sizes(certificate: &Certificate, to: &mut dyn Write) -> io::Result<()> {
    let plan = &certificate.plan;
    let how = match (&certificate.rule, certificate.request.align) {
        (Some(rule), _) => format!("rule {}", rule.id),
        (None, align) => format!("align {}", align.unwrap_or(1)),
    };
    writeln!(to, "{:WORD$}{}, tp {}", "under", plain(&how), plan.tp)?;
    let line = |part: &Part| {
        let width = &part.width;
        let blocks = match part.blocks {
            Some(blocks) => format!(", scale blocks {} -> {}", blocks.from, blocks.to),
            None => String::new(),
        };
        match width.same() {
            true => format!("{} stays{blocks}", width.from),
            false => format!(
                "{} -> {}, {} a rank{blocks}",
                width.from, width.to, width.slot
            ),
        }
    };
    writeln!(to, "{:WORD$}{}", "intermediate", line(&plan.routed))?;
    if let Some(part) = &plan.shared {
        writeln!(to, "{:WORD$}{}", "shared", line(part))?;
    }
    Ok(())
}

fn checks(certificate: &Certificate, to: &mut dyn Write) -> io::Result<()> {
    match &certificate.audit {
        Some(audit) => writeln!(
            to,
            "{:WORD$}{} of {} experts in {}{}: {}{}, every element in its place, every pad inert",
            "audit",
            audit.experts.0,
            audit.experts.1,
            plural(audit.layers, "layer"),
            match audit.shared {
                0 => String::new(),
                some => format!(", shared ones in {}", thousands(some)),
            },
            plural(audit.checked_bytes, "byte"),
            match &*audit.part {
                "" => String::new(),
                part => format!(" ({})", plain(part)),
            },
        )?,
        None => writeln!(to, "{:WORD$}none: no layer was looked at", "audit")?,
    }
    for note in &certificate.differential {
        let prefix = plain(note.prefix.trim_end_matches('.'));
        writeln!(
            to,
            "{:WORD$}{prefix}: {}",
            "differential",
            plain(&note.verdict)
        )?;
    }
    Ok(())
}

/// Writes the verdict on a padded checkpoint, with the first faults.
///
/// # Errors
/// Those of the stream.
pub fn verified_human(verified: &Verified, out: &Path, to: &mut dyn Write) -> io::Result<()> {
    let place = out.display().to_string();
    writeln!(to, "{:WORD$}{}", "verify", plain(&place))?;
    if let Some(certificate) = &verified.certificate {
        sizes(certificate, to)?;
    }
    let kind = if verified.faults == 0 {
        Kind::Pass
    } else {
        Kind::Fail
    };
    write!(
        to,
        "{}{} ({} padded) and {}, {}",
        kind_word(kind, WORD),
        plural(verified.tensors, "tensor"),
        thousands(verified.padded),
        plural(verified.files, "other file"),
        plural(verified.bytes, "byte"),
    )?;
    if verified.faults == 0 {
        return writeln!(
            to,
            ": the input's elements and inert pads, as the certificate says"
        );
    }
    writeln!(to, "; {}", plural(verified.faults, "fault"))?;
    for fault in &verified.first {
        writeln!(
            to,
            "  {:9}{}: {}",
            fault.kind,
            plain(&fault.place),
            plain(&fault.why)
        )?;
    }
    Ok(())
}

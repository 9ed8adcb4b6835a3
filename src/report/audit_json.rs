//! Writes an audit of files as JSON; the fields are an interface, and only ever added to.
//!
//! It must not decide anything. Layer 10.

use super::parts::SCHEMA;
use crate::audit::{Audited, Diagnosis, Difference, Evidence, Fault};
use crate::checkpoint::LayerId;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Writes one object. Codes are hexadecimal strings, sizes numbers.
///
/// # Errors
/// Those of the stream.
pub fn audit_json(audited: &Audited, out: &mut dyn Write) -> io::Result<()> {
    let audit = &audited.audit;
    let regions: Vec<Value> = audit
        .regions
        .iter()
        .map(|r| json!({"tensor": r.tensor, "fault": r.fault.name(), "count": r.count}))
        .collect();
    let document = json!({
        "schema": SCHEMA,
        "verdict": if audit.clean() { "pass" } else { "fail" },
        "before": audited.before,
        "after": audited.after,
        "prefix": audited.prefix,
        "layer": audited.layer.map(layer),
        "rule": audited.rule,
        "tp": audited.tp,
        "ep": audited.ep,
        "ranks": audited.ranks,
        "bytes": audit.checked_bytes,
        "elements": audit.elements,
        "pads": audit.pads,
        "minus_zero_pads": audit.minus_zero_pads,
        "differing": audit.differing,
        "regions": regions,
        "first": audit.first.iter().map(difference).collect::<Vec<_>>(),
        "faults": audited.diagnoses.iter().map(diagnosis).collect::<Vec<_>>(),
        "notes": audited.notes,
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// A number, or a draft's name.
fn layer(id: LayerId) -> Value {
    match id {
        LayerId::Model(number) => json!(number),
        LayerId::Draft(_) => json!(id.to_string()),
    }
}

fn difference(d: &Difference) -> Value {
    let place = |at: Option<(usize, usize, usize)>| at.map(|(e, r, c)| [e, r, c]);
    let code = |n: u64| match d.fault {
        Fault::Size => json!(n),
        _ => json!(format!("{n:#x}")),
    };
    json!({
        "tensor": d.tensor,
        "rank": d.rank,
        "fault": d.fault.name(),
        "physical": place(d.physical),
        "logical": place(d.logical),
        "byte": d.byte,
        "wanted": code(d.wanted),
        "actual": code(d.actual),
    })
}

fn diagnosis(d: &Diagnosis) -> Value {
    json!({
        "name": d.name,
        "meaning": d.meaning,
        "source": d.source,
        "exact": d.by == Evidence::Elements,
        "by": match d.by {
            Evidence::Elements => "elements",
            Evidence::Ends => "ends",
            Evidence::Places => "places",
            Evidence::Values => "values",
            Evidence::Counts => "counts",
            Evidence::Sizes => "sizes",
        },
        "tensors": d.tensors,
        "ranks": d.ranks,
        "detail": d.detail,
        "sample": d.sample,
        "experts": d.experts.as_ref().map(|e| [e.start, e.end]),
    })
}

//! One JSON object at the end of the run: for scripts.
//!
//! It must not decide anything. Layer 10.

use super::parts::{self, SCHEMA};
use crate::property::Verdict;
use crate::run::{Ended, Environment, Event, Group, Reporter};
use serde_json::{Value, json};
use std::io::{self, Write};

/// The JSON format.
pub struct Json<'w> {
    out: Box<dyn Write + 'w>,
    environment: Option<Environment>,
    findings: Vec<Value>,
}

impl<'w> Json<'w> {
    /// Writes to `out`, at the end.
    pub fn new(out: impl Write + 'w) -> Self {
        Json {
            out: Box::new(out),
            environment: None,
            findings: Vec::new(),
        }
    }
}

pub(super) const fn ended_word(ended: Ended) -> &'static str {
    match ended {
        Ended::Whole => "whole",
        Ended::MaxFail => "max-fail",
        Ended::Interrupted => "interrupted",
    }
}

fn group(group: &Group) -> Value {
    json!({
        "property": group.property,
        "subject": group.subject,
        "verdict": group.kind().word().to_lowercase(),
        "counts": group.counts,
        "reason": group.reason(),
        "vacuous": parts::vacuous(group),
        "time": group.time.as_secs_f64(),
    })
}

impl Reporter for Json<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::RunStarted { environment } => self.environment = Some((*environment).clone()),
            Event::CaseFinished(done) => {
                if matches!(done.verdict, Verdict::Fail(_) | Verdict::Broken(_)) {
                    self.findings.push(Value::Object(parts::check(done)));
                }
            }
            Event::RunFinished {
                counts,
                groups,
                coverage,
                shortfalls,
                ended,
                resume,
                time,
            } => {
                let document = json!({
                    "schema": SCHEMA,
                    "environment": self.environment,
                    "counts": counts,
                    "properties": groups.iter().map(group).collect::<Vec<_>>(),
                    "coverage": parts::coverage(coverage),
                    "shortfalls": shortfalls,
                    "findings": self.findings,
                    "ended": ended_word(*ended),
                    "resume": resume,
                    "time": time.as_secs_f64(),
                });
                serde_json::to_writer_pretty(&mut self.out, &document)?;
                writeln!(self.out)?;
                self.out.flush()?;
            }
            Event::CaseStarted { .. } | Event::Shrunk { .. } => {}
        }
        Ok(())
    }
}

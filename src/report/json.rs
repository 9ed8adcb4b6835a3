//! One JSON object at the end of the run: for scripts.
//!
//! It must not decide anything. Layer 10.

use super::parts::{self, SCHEMA};
use crate::property::Verdict;
use crate::run::{Environment, Event, Reporter};
use serde_json::{Map, Value, json};
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

impl Reporter for Json<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::RunStarted { environment } => self.environment = Some((*environment).clone()),
            Event::CaseFinished(done) => {
                if matches!(done.verdict, Verdict::Fail(_) | Verdict::Broken(_)) {
                    self.findings.push(Value::Object(parts::check(done)));
                }
            }
            Event::RunFinished { .. } => {
                let mut document = Map::new();
                document.insert("schema".to_owned(), json!(SCHEMA));
                document.insert("environment".to_owned(), json!(self.environment));
                document.append(&mut parts::end(event));
                document.insert("findings".to_owned(), json!(self.findings));
                serde_json::to_writer_pretty(&mut self.out, &document)?;
                writeln!(self.out)?;
                self.out.flush()?;
            }
            Event::CaseStarted { .. } | Event::Shrunk { .. } => {}
        }
        Ok(())
    }
}

//! One JSON object per event, flushed at once: for live tools.
//!
//! It must not keep anything back. Layer 10.

use super::parts::{self, SCHEMA};
use crate::run::{Event, Reporter};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The JSON-lines format.
pub struct Jsonl<'w> {
    out: Box<dyn Write + 'w>,
}

impl<'w> Jsonl<'w> {
    /// Writes to `out`.
    pub fn new(out: impl Write + 'w) -> Self {
        Jsonl { out: Box::new(out) }
    }
}

fn line(event: &Event<'_>) -> Value {
    match event {
        Event::RunStarted { environment } => {
            json!({ "event": "run-started", "schema": SCHEMA, "environment": environment })
        }
        Event::CaseStarted { case } => json!({ "event": "case-started", "case": case }),
        Event::Shrunk { property, from, to } => {
            json!({ "event": "shrunk", "property": property, "from": from, "to": to })
        }
        Event::CaseFinished(done) => {
            let mut all = Map::new();
            all.insert("event".to_owned(), json!("case-finished"));
            all.append(&mut parts::check(done));
            all.insert("time".to_owned(), json!(done.time.as_secs_f64()));
            Value::Object(all)
        }
        Event::RunFinished { .. } => {
            let mut all = Map::new();
            all.insert("event".to_owned(), json!("run-finished"));
            all.append(&mut parts::end(event));
            Value::Object(all)
        }
    }
}

impl Reporter for Jsonl<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        writeln!(self.out, "{}", line(event))?;
        self.out.flush()
    }
}

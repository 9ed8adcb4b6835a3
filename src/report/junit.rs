//! JUnit XML at the end of the run: for dashboards.
//!
//! It must not decide anything. Layer 10.

use super::block::{finding_block, sentence};
use super::parts::reason;
use crate::property::Verdict;
use crate::run::{Event, Finished, Reporter};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::io::{self, Write};

/// The JUnit format: a suite per property, a test case per case line.
pub struct Junit<'w> {
    out: Box<dyn Write + 'w>,
    suites: Vec<TestSuite>,
}

impl<'w> Junit<'w> {
    /// Writes to `out`, at the end.
    pub fn new(out: impl Write + 'w) -> Self {
        Junit {
            out: Box::new(out),
            suites: Vec::new(),
        }
    }

    fn add(&mut self, done: &Finished) -> io::Result<()> {
        let known = |suite: &&mut TestSuite| suite.name.as_str() == done.property;
        let mut case = TestCase::new(done.case.as_str(), status(done)?);
        case.set_classname(done.property).set_time(done.time);
        match self.suites.iter_mut().find(known) {
            Some(suite) => suite.add_test_case(case),
            None => {
                let mut suite = TestSuite::new(done.property);
                suite.add_test_case(case);
                self.suites.push(suite);
                return Ok(());
            }
        };
        Ok(())
    }
}

fn status(done: &Finished) -> io::Result<TestCaseStatus> {
    let reason = reason(&done.verdict).unwrap_or_default();
    let mut status = match &done.verdict {
        Verdict::Pass(_) => return Ok(TestCaseStatus::success()),
        Verdict::Skip(_) | Verdict::Vacuous(_) => {
            let mut skipped = TestCaseStatus::skipped();
            let kind = if matches!(done.verdict, Verdict::Skip(_)) {
                "skip"
            } else {
                "vacuous"
            };
            skipped.set_type(kind).set_message(reason);
            return Ok(skipped);
        }
        Verdict::Fail(finding) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_type("fail").set_message(sentence(finding));
            status
        }
        Verdict::Broken(_) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type("broken").set_message(reason);
            status
        }
    };
    let mut text = anstream::StripStream::new(Vec::new());
    finding_block(done, true, true, &mut text)?;
    status.set_description(String::from_utf8_lossy(&text.into_inner()).into_owned());
    Ok(status)
}

impl Reporter for Junit<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::CaseFinished(done) => self.add(done),
            Event::RunFinished { time, .. } => {
                let mut report = Report::new("padproof");
                report.set_time(*time);
                report.add_test_suites(std::mem::take(&mut self.suites));
                let text = report.to_string().map_err(io::Error::other)?;
                writeln!(self.out, "{}", text.trim_end())?;
                self.out.flush()
            }
            _ => Ok(()),
        }
    }
}

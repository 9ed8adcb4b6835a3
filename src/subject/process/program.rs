//! A program that answers requests: its command, what it says of itself, its running processes.
//!
//! It must not compute. Layer 5.

use super::child::Child;
use super::group::{Running, lock};
use super::message;
use super::reply::{self, HEADER_MAX, Hello};
use super::supports::Supports;
use crate::subject::error::{Misbehaviour, SubjectError};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a program is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a reply.
    pub reply: Duration,
    /// For its greeting: imports and compilation come before it.
    pub start: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            reply: Duration::from_secs(10),
            start: Duration::from_secs(60),
        }
    }
}

/// A program, started as often as there are threads that ask it at once.
#[derive(Debug)]
pub struct Program {
    command: String,
    words: Vec<String>,
    limits: Limits,
    hello: Hello,
    running: Running,
    /// Processes that nobody asks now.
    idle: Mutex<Vec<Child>>,
    /// Whether a growth of its memory was told: a fault of the program, whichever case was asked last.
    pub(super) grew: AtomicBool,
}

impl Program {
    /// Starts a command (words in quotes as in a shell) and greets it. Whoever holds `running` can
    /// end it from the first moment on.
    ///
    /// # Errors
    /// When it does not start, or does not answer as docs/subject-protocol.md says.
    pub fn start(
        command: &str,
        limits: Limits,
        running: &Running,
    ) -> Result<Program, SubjectError> {
        let words = shlex::split(command).ok_or_else(|| SubjectError::Misbehaved {
            what: Misbehaviour::Quote {
                command: crate::terms::plain(command),
            },
            stderr: Vec::new(),
        })?;
        let (child, hello) = greeted(&words, limits, running)?;
        Ok(Program {
            command: command.to_owned(),
            words,
            limits,
            hello,
            running: running.clone(),
            idle: Mutex::new(vec![child]),
            grew: AtomicBool::new(false),
        })
    }

    /// The same program with a process that was asked nothing yet.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn afresh(&self) -> Result<Program, SubjectError> {
        Program::start(&self.command, self.limits, &self.running)
    }

    /// The name that it gives itself.
    pub fn name(&self) -> &str {
        &self.hello.name
    }

    /// The name it gives itself, and the command.
    pub fn title(&self) -> String {
        let command = crate::terms::plain(&self.command);
        format!("{} ({command})", self.hello.name)
    }

    /// The arguments that choose it, behind a space.
    pub fn arguments(&self) -> String {
        let quoted = shlex::try_quote(&self.command).unwrap_or((&self.command).into());
        let mut all = format!(" --subject {quoted}");
        let plain = Limits::default();
        for (option, limit, plain) in [
            ("timeout", self.limits.reply, plain.reply),
            ("start-timeout", self.limits.start, plain.start),
        ] {
            if limit != plain {
                let words = match limit.subsec_nanos() {
                    0 => format!("{}s", limit.as_secs()),
                    _ => format!("{}ms", limit.as_millis()),
                };
                all.push_str(&format!(" --{option} {words}"));
            }
        }
        all
    }

    /// What it says it can be asked.
    pub fn supports(&self) -> &Supports {
        &self.hello.supports
    }

    pub(super) fn timeout(&self) -> Duration {
        self.limits.reply
    }

    /// A process to ask: one that is idle, else a new one.
    pub(super) fn take(&self) -> Result<Child, SubjectError> {
        if let Some(child) = lock(&self.idle).pop() {
            return Ok(child);
        }
        let (child, hello) = greeted(&self.words, self.limits, &self.running)?;
        if hello == self.hello {
            return Ok(child);
        }
        Err(SubjectError::Misbehaved {
            what: Misbehaviour::Reply {
                part: "hello".to_owned(),
                why: "another process of the same command said something else".to_owned(),
            },
            stderr: child.kill(),
        })
    }

    /// Takes a process back that is well.
    pub(super) fn give(&self, child: Child) {
        lock(&self.idle).push(child);
    }
}

impl Drop for Program {
    /// Tells all before the first is waited for.
    fn drop(&mut self) {
        lock(&self.idle).iter_mut().for_each(Child::close);
    }
}

/// A process that was started and greeted.
fn greeted(
    words: &[String],
    limits: Limits,
    running: &Running,
) -> Result<(Child, Hello), SubjectError> {
    let silent = |what| SubjectError::Misbehaved {
        what,
        stderr: Vec::new(),
    };
    let mut child = Child::spawn(words, running, HEADER_MAX).map_err(silent)?;
    match greet(&mut child, limits.start) {
        Ok(hello) => Ok((child, hello)),
        Err(what) => Err(SubjectError::Misbehaved {
            what,
            stderr: child.kill(),
        }),
    }
}

fn greet(child: &mut Child, limit: Duration) -> Result<Hello, Misbehaviour> {
    let hello = message::hello().map_err(Misbehaviour::Pipe)?;
    child.send(hello, HEADER_MAX);
    let bytes = child.receive(limit).map_err(|what| match what {
        Misbehaviour::Timeout { timeout, text } => Misbehaviour::NoGreeting { timeout, text },
        other => other,
    })?;
    reply::hello(&bytes)
}

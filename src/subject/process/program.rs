//! A program that answers requests: its command, what it says of itself, its running processes.
//!
//! It must not compute. Layer 5.

use super::child::{Child, Handle};
use super::message;
use super::reply::{self, HEADER_MAX, Hello};
use super::supports::Supports;
use crate::subject::error::{Misbehaviour, SubjectError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A program, started as often as there are threads that ask it at once.
#[derive(Debug)]
pub struct Program {
    command: String,
    words: Vec<String>,
    timeout: Duration,
    hello: Hello,
    /// Processes that nobody asks now.
    idle: Mutex<Vec<Child>>,
    /// Every process that may run.
    running: Mutex<Vec<Weak<Mutex<std::process::Child>>>>,
}

impl Program {
    /// How long a reply may take if nothing else is said.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Starts a command (words in quotes as in a shell) and greets it.
    ///
    /// # Errors
    /// When it does not start, or does not answer as docs/subject-protocol.md says.
    pub fn start(command: &str, timeout: Duration) -> Result<Program, SubjectError> {
        let silent = |what| SubjectError::Misbehaved {
            what,
            stderr: Vec::new(),
        };
        let words = shlex::split(command).ok_or_else(|| silent(Misbehaviour::Quote))?;
        let mut child = Child::spawn(&words).map_err(silent)?;
        match greet(&mut child, timeout) {
            Ok(hello) => {
                let running = vec![Arc::downgrade(child.handle())];
                Ok(Program {
                    command: command.to_owned(),
                    words,
                    timeout,
                    hello,
                    idle: Mutex::new(vec![child]),
                    running: Mutex::new(running),
                })
            }
            Err(what) => Err(SubjectError::Misbehaved {
                what,
                stderr: child.kill(),
            }),
        }
    }

    /// The name it gives itself, and the command.
    pub fn title(&self) -> String {
        let command = crate::terms::plain(&self.command);
        match self.hello.name.as_str() {
            "" => command,
            name => format!("{name} ({command})"),
        }
    }

    /// The arguments that choose it, behind a space.
    pub fn arguments(&self) -> String {
        let quoted = shlex::try_quote(&self.command).unwrap_or((&self.command).into());
        let mut all = format!(" --subject {quoted}");
        if self.timeout != Program::TIMEOUT {
            all.push_str(&format!(" --timeout {}ms", self.timeout.as_millis()));
        }
        all
    }

    /// What it says it can be asked.
    pub fn supports(&self) -> &Supports {
        &self.hello.supports
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A process to ask: one that is idle, else a new one.
    pub(super) fn take(&self) -> Result<Child, SubjectError> {
        if let Some(child) = lock(&self.idle).pop() {
            return Ok(child);
        }
        let silent = |what| SubjectError::Misbehaved {
            what,
            stderr: Vec::new(),
        };
        let mut child = Child::spawn(&self.words).map_err(silent)?;
        {
            let mut running = lock(&self.running);
            running.retain(|handle| handle.strong_count() > 0);
            running.push(Arc::downgrade(child.handle()));
        }
        let what = match greet(&mut child, self.timeout) {
            Ok(hello) if hello == self.hello => return Ok(child),
            Ok(_) => Misbehaviour::Reply {
                part: "hello".to_owned(),
                why: "another process of the same command said something else".to_owned(),
            },
            Err(what) => what,
        };
        Err(SubjectError::Misbehaved {
            what,
            stderr: child.kill(),
        })
    }

    /// Takes a process back that is well.
    pub(super) fn give(&self, child: Child) {
        lock(&self.idle).push(child);
    }

    /// Ends every process at once.
    pub fn kill(&self) {
        let running: Vec<Handle> = lock(&self.running)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for handle in running {
            let _ = lock(&handle).kill();
        }
    }
}

/// Greets a process that was just started. A slow start is no slow reply.
fn greet(child: &mut Child, timeout: Duration) -> Result<Hello, Misbehaviour> {
    /// Time that imports and compilation may take beyond that of a reply.
    const START: Duration = Duration::from_secs(60);
    let hello = message::hello().map_err(Misbehaviour::Pipe)?;
    child.send(hello, HEADER_MAX);
    let bytes = child.receive(timeout.saturating_add(START))?;
    reply::hello(&bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

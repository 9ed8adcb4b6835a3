//! One running process: its pipes, the threads that serve them, its end.
//!
//! It must not know what is said. Layer 5.

use super::frame;
use super::memory::{Watch, resident};
use super::stderr::Stderr;
use crate::subject::error::Misbehaviour;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Replies that wait to be taken; the process blocks after them.
const WAITING: usize = 2;
/// How long a process that closed its pipes, or whose input ended, is left to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// A process that can be killed from another thread.
pub(super) type Handle = Arc<Mutex<std::process::Child>>;

/// A process and its pipes.
#[derive(Debug)]
pub(super) struct Child {
    process: Handle,
    pid: u32,
    /// To the thread that writes; dropping it closes the process's input.
    requests: Option<Sender<Vec<u8>>>,
    replies: Receiver<Result<Vec<u8>, Misbehaviour>>,
    /// Longest reply that is taken.
    limit: Arc<AtomicU64>,
    stderr: Stderr,
    memory: Watch,
    /// Number of the next request.
    next: u64,
}

impl Child {
    /// Starts a program, in a process group of its own: an interrupt from the terminal is
    /// padproof's to handle.
    pub(super) fn spawn(words: &[String]) -> Result<Child, Misbehaviour> {
        let (program, arguments) = words.split_first().ok_or(Misbehaviour::NoCommand)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn().map_err(|error| Misbehaviour::Start {
            program: program.clone(),
            why: error.to_string(),
        })?;
        let pipes = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Misbehaviour::Pipe("a pipe is missing".to_owned()));
        };
        let limit = Arc::new(AtomicU64::new(0));
        Ok(Child {
            pid: process.id(),
            process: Arc::new(Mutex::new(process)),
            requests: Some(writer(stdin)),
            replies: reader(stdout, Arc::clone(&limit)),
            limit,
            stderr: Stderr::read(stderr),
            memory: Watch::default(),
            next: 0,
        })
    }

    /// For whoever ends all processes at once.
    pub(super) fn handle(&self) -> &Handle {
        &self.process
    }

    /// The number of the next request.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Hands one request to the pipe; its reply may be `limit` bytes long.
    pub(super) fn send(&mut self, request: Vec<u8>, limit: u64) {
        self.limit.fetch_max(limit, Ordering::Relaxed);
        if let Some(requests) = &self.requests {
            // A writer that is gone left a reason with the reader.
            let _ = requests.send(request);
        }
    }

    /// What came although nothing was asked.
    pub(super) fn unasked(&mut self) -> Result<(), Misbehaviour> {
        match self.replies.try_recv() {
            Ok(Ok(bytes)) => Err(Misbehaviour::Unasked {
                bytes: bytes.len() as u64,
            }),
            Ok(Err(Misbehaviour::Closed)) => Err(self.ended()),
            Ok(Err(what)) => Err(what),
            Err(_) => Ok(()),
        }
    }

    /// Takes one reply.
    pub(super) fn receive(&mut self, timeout: Duration) -> Result<Vec<u8>, Misbehaviour> {
        match self.replies.recv_timeout(timeout) {
            Ok(Err(Misbehaviour::Closed)) | Err(RecvTimeoutError::Disconnected) => {
                Err(self.ended())
            }
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => Err(Misbehaviour::Timeout { timeout }),
        }
    }

    /// Looks at its memory after a reply.
    pub(super) fn weigh(&mut self) -> Result<(), Misbehaviour> {
        match resident(self.pid).and_then(|bytes| self.memory.reply(bytes)) {
            None => Ok(()),
            Some((bytes, replies)) => Err(Misbehaviour::Memory { bytes, replies }),
        }
    }

    /// What it said last, to show beside a reply.
    pub(super) fn said(&self) -> Vec<String> {
        self.stderr.lines()
    }

    /// Ends it at once, and answers its last words.
    pub(super) fn kill(self) -> Vec<String> {
        let _ = lock(&self.process).kill();
        let _ = lock(&self.process).wait();
        self.stderr.last_words()
    }

    /// How it ended, once its output has.
    fn ended(&mut self) -> Misbehaviour {
        match self.wait(GRACE) {
            Some(status) => Misbehaviour::Ended {
                how: status.to_string(),
            },
            None => Misbehaviour::Ended {
                how: "its output, and runs on".to_owned(),
            },
        }
    }

    fn wait(&self, most: Duration) -> Option<ExitStatus> {
        let since = Instant::now();
        loop {
            let ended = lock(&self.process).try_wait();
            match ended {
                Ok(Some(status)) => return Some(status),
                Ok(None) if since.elapsed() < most => {
                    // The standard library has no wait with a limit of time; nobody unparks.
                    std::thread::park_timeout(Duration::from_millis(2));
                }
                _ => return None,
            }
        }
    }
}

impl Drop for Child {
    /// Closes its input, which ends it if it is well; kills it if not.
    fn drop(&mut self) {
        self.requests = None;
        if self.wait(GRACE).is_none() {
            let _ = lock(&self.process).kill();
            let _ = lock(&self.process).wait();
        }
    }
}

fn lock(process: &Handle) -> std::sync::MutexGuard<'_, std::process::Child> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that writes what it is sent, so that a process that does not read cannot stop us.
fn writer(mut stdin: ChildStdin) -> Sender<Vec<u8>> {
    let (sender, requests) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for request in requests {
            if frame::write(&mut stdin, &request).is_err() {
                break;
            }
        }
    });
    sender
}

/// A thread that reads replies, so that they can be waited for with a limit of time.
fn reader(
    mut stdout: ChildStdout,
    limit: Arc<AtomicU64>,
) -> Receiver<Result<Vec<u8>, Misbehaviour>> {
    let (sender, replies) = sync_channel(WAITING);
    std::thread::spawn(move || {
        loop {
            let read = frame::read(&mut stdout, || limit.load(Ordering::Relaxed));
            let reply = read.and_then(|bytes| bytes.ok_or(Misbehaviour::Closed));
            let last = reply.is_err();
            if sender.send(reply).is_err() || last {
                break;
            }
        }
    });
    replies
}

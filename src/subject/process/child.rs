//! One running process: its pipes, the threads that serve them, its end.
//!
//! It must not know what is said. Layer 5.

use super::frame::{self, Begun, Frames};
use super::group::{self, Handle, Running};
use super::memory::{self, Growth, Told, Watch, resident};
use super::stderr::Stderr;
use crate::subject::error::Misbehaviour;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

/// Replies that wait to be taken; the process blocks after them.
const WAITING: usize = 2;
/// How long a process that closed its pipes, or whose input ended, is left to end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// How often a wait for a reply looks whether all were ended.
const LOOK: Duration = Duration::from_millis(100);

/// What comes of a stream of replies.
type Replies = Receiver<Result<Vec<u8>, Misbehaviour>>;

/// A process and its pipes.
#[derive(Debug)]
pub(super) struct Child {
    group: Handle,
    running: Running,
    pid: u32,
    /// To the thread that writes; dropping it closes the process's input.
    requests: Option<Sender<Vec<u8>>>,
    replies: Replies,
    /// What came of a reply that has not come whole.
    begun: Begun,
    /// Longest reply that is taken.
    limit: Arc<AtomicU64>,
    stderr: Stderr,
    memory: Watch,
    /// Whether it grew after that was told: another takes its place, without a word.
    worn: bool,
    /// Number of the next request.
    next: u64,
}

impl Child {
    /// Starts a program, whose first words may be `limit` bytes long, even before it is sent any.
    pub(super) fn spawn(
        words: &[String],
        running: &Running,
        limit: u64,
    ) -> Result<Child, Misbehaviour> {
        let (group, (stdin, stdout, stderr)) = running.spawn(words)?;
        let limit = Arc::new(AtomicU64::new(limit));
        let (replies, begun) = reader(stdout, Arc::clone(&limit));
        let pid = group::lock(&group).pid();
        Ok(Child {
            pid,
            group,
            running: running.clone(),
            requests: Some(writer(stdin)),
            replies,
            begun,
            limit,
            stderr: Stderr::read(stderr),
            memory: Watch::default(),
            worn: false,
            next: 0,
        })
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

    /// Takes one reply. Whatever ends the wait after an interrupt, the interrupt did.
    pub(super) fn receive(&mut self, timeout: Duration) -> Result<Vec<u8>, Misbehaviour> {
        let reply = self.await_reply(timeout);
        reply.map_err(|what| match self.running.ended() {
            true => Misbehaviour::Interrupted,
            false => what,
        })
    }

    fn await_reply(&mut self, timeout: Duration) -> Result<Vec<u8>, Misbehaviour> {
        let since = Instant::now();
        let mut dead: Option<Instant> = None;
        loop {
            let left = timeout.saturating_sub(since.elapsed());
            match self.replies.recv_timeout(left.min(LOOK)) {
                Ok(Err(Misbehaviour::Closed)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.ended());
                }
                Ok(reply) => return reply,
                // Something it started may hold its pipes when it has been ended.
                Err(RecvTimeoutError::Timeout) if self.running.ended() => {
                    return Err(Misbehaviour::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {
                    // What it left behind is ended with it, but holds its output open where it left
                    // the group: the end of the output is not waited for then, only what is in it.
                    let late = since.elapsed() >= timeout;
                    if group::settle(&self.group) {
                        let died = *dead.get_or_insert_with(Instant::now);
                        if late || died.elapsed() >= GRACE {
                            return Err(self.ended());
                        }
                    } else if late {
                        return Err(Misbehaviour::Timeout {
                            timeout,
                            text: self.begun.text(),
                        });
                    }
                }
            }
        }
    }

    /// Looks at its memory after a reply: a growth that one request repeated must confirm. `told` is whether a
    /// growth of the program was told already, which once is enough of.
    pub(super) fn weigh(&mut self, told: &AtomicBool) -> Result<Option<Growth>, Misbehaviour> {
        match resident(self.pid).map_or(Told::Nothing, |bytes| self.memory.reply(bytes)) {
            Told::Nothing => Ok(None),
            Told::Seems(growth) if !told.load(Ordering::Relaxed) => Ok(Some(growth)),
            Told::Seems(growth) | Told::Leaks(growth) => self.grew(growth, told).map(|()| None),
        }
    }

    /// Judges a growth by what one request, repeated by `again`, leaves.
    pub(super) fn confirm(
        &mut self,
        growth: Growth,
        told: &AtomicBool,
        mut again: impl FnMut(&mut Child) -> Result<(), Misbehaviour>,
    ) -> Result<(), Misbehaviour> {
        let mut readings = Vec::new();
        for _ in 0..memory::REPEATS {
            again(self)?;
            readings.extend(resident(self.pid));
        }
        if memory::confirmed(growth, &readings) {
            return self.grew(growth, told);
        }
        self.memory.forget();
        Ok(())
    }

    /// It grew: misbehaviour where that was not told before.
    fn grew(&mut self, growth: Growth, told: &AtomicBool) -> Result<(), Misbehaviour> {
        self.worn = true;
        let Growth { bytes, replies } = growth;
        match told.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Misbehaviour::Memory { bytes, replies }),
        }
    }

    /// Whether it is to be asked no more, though it answers.
    pub(super) fn worn(&self) -> bool {
        self.worn
    }

    /// What it said last, to show beside a reply.
    pub(super) fn said(&self) -> Vec<String> {
        self.stderr.recent()
    }

    /// Ends it at once, and answers its last words.
    pub(super) fn kill(self) -> Vec<String> {
        group::lock(&self.group).end();
        self.stderr.last_words()
    }

    /// Closes its input, which ends it if it is well.
    pub(super) fn close(&mut self) {
        self.requests = None;
    }

    /// How it ended, once its output has.
    fn ended(&mut self) -> Misbehaviour {
        match group::wait(&self.group, GRACE) {
            Some(status) => Misbehaviour::Ended {
                how: status.to_string(),
            },
            None => Misbehaviour::Ended {
                how: "its output alone, the process runs on".to_owned(),
            },
        }
    }
}

impl Drop for Child {
    /// Closes its input, and ends what does not end by itself.
    fn drop(&mut self) {
        self.close();
        if group::wait(&self.group, GRACE).is_none() {
            group::lock(&self.group).end();
        }
    }
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
fn reader(stdout: ChildStdout, limit: Arc<AtomicU64>) -> (Replies, Begun) {
    let (sender, replies) = sync_channel(WAITING);
    let mut frames = Frames::new(stdout);
    let begun = frames.begun().clone();
    std::thread::spawn(move || {
        loop {
            let read = frames.read(|| limit.load(Ordering::Relaxed));
            let reply = read.and_then(|bytes| bytes.ok_or(Misbehaviour::Closed));
            let last = reply.is_err();
            if sender.send(reply).is_err() || last {
                break;
            }
        }
    });
    (replies, begun)
}

//! A process and whatever it starts: one group that ends together, padproof's own end included.
//!
//! It must not read or write its pipes. Layer 5.

use crate::subject::error::Misbehaviour;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A group that can be ended from another thread.
pub(super) type Handle = Arc<Mutex<Group>>;
/// Input, output and standard error of its first process.
pub(super) type Pipes = (ChildStdin, ChildStdout, ChildStderr);

/// The group of one process.
#[derive(Debug)]
pub(super) struct Group {
    first: Child,
    watch: Watch,
    /// How the first process ended, once the system has forgotten it.
    status: Option<ExitStatus>,
}

impl Group {
    /// Starts a program, in a group of its own: an interrupt from the terminal is padproof's to
    /// handle.
    fn spawn(words: &[String]) -> Result<(Group, Pipes), Misbehaviour> {
        let (program, arguments) = words.split_first().ok_or(Misbehaviour::NoCommand)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut first = command.spawn().map_err(|error| Misbehaviour::Start {
            program: program.clone(),
            why: error.to_string(),
        })?;
        let pipes = (first.stdin.take(), first.stdout.take(), first.stderr.take());
        let watch = Watch::over(&first);
        let mut group = Group {
            first,
            watch,
            status: None,
        };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            group.end();
            return Err(Misbehaviour::Pipe("a pipe is missing".to_owned()));
        };
        Ok((group, (stdin, stdout, stderr)))
    }

    /// The number of its first process.
    pub(super) fn pid(&self) -> u32 {
        self.first.id()
    }

    /// Ends all of it at once, and answers how the first process ended.
    pub(super) fn end(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // Until it is waited for, the number of the group is no one else's.
            self.signal();
            let _ = self.first.kill();
            self.watch.leave();
            self.status = self.first.wait().ok();
        }
        self.status
    }

    /// Whether its first process has ended; the system still knows it then.
    #[cfg(unix)]
    fn ended(&mut self) -> bool {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let of = WaitId::Pid(Pid::from_child(&self.first));
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.status.is_some() || !matches!(waitid(of, look), Ok(None))
    }

    #[cfg(not(unix))]
    fn ended(&mut self) -> bool {
        self.status.is_some() || !matches!(self.first.try_wait(), Ok(None))
    }

    #[cfg(unix)]
    fn signal(&self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let _ = kill_process_group(Pid::from_child(&self.first), Signal::KILL);
    }

    #[cfg(not(unix))]
    fn signal(&self) {}
}

/// Ends what a first process left behind that has ended, and answers whether it has.
pub(super) fn settle(group: &Handle) -> bool {
    let mut held = lock(group);
    let ended = held.ended();
    if ended {
        held.end();
    }
    ended
}

/// Waits for the first process to end, and ends the rest; none where it does not end in time.
pub(super) fn wait(group: &Handle, most: Duration) -> Option<ExitStatus> {
    let since = Instant::now();
    loop {
        let mut held = lock(group);
        if held.ended() {
            return held.end();
        }
        drop(held);
        if since.elapsed() >= most {
            return None;
        }
        // The standard library has no wait with a limit of time; nobody unparks.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shell that ends a group when padproof itself dies: it reads from a pipe that ends then.
#[derive(Debug)]
struct Watch(Option<Child>);

impl Watch {
    /// Without a shell there is none.
    fn over(process: &Child) -> Watch {
        const SCRIPT: &str = r#"trap "" HUP INT TERM; read -r word || kill -s KILL -- "-$1""#;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "padproof-watch", &process.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Watch(if cfg!(unix) {
            command.spawn().ok()
        } else {
            None
        })
    }

    /// Sends it home: the group has ended.
    fn leave(&mut self) {
        if let Some(mut shell) = self.0.take() {
            let _ = shell.kill();
            let _ = shell.wait();
        }
    }
}

/// Every process that may run. Whoever holds it can end them all, wherever padproof is.
#[derive(Debug, Clone, Default)]
pub struct Running(Arc<Mutex<Groups>>);

#[derive(Debug, Default)]
struct Groups {
    all: Vec<Weak<Mutex<Group>>>,
    ended: bool,
}

impl Running {
    /// Starts a program, unless all were ended.
    pub(super) fn spawn(&self, words: &[String]) -> Result<(Handle, Pipes), Misbehaviour> {
        let mut groups = lock(&self.0);
        if groups.ended {
            return Err(Misbehaviour::Interrupted);
        }
        let (group, pipes) = Group::spawn(words)?;
        let handle = Arc::new(Mutex::new(group));
        groups.all.retain(|group| group.strong_count() > 0);
        groups.all.push(Arc::downgrade(&handle));
        Ok((handle, pipes))
    }

    /// Whether all were ended.
    pub fn ended(&self) -> bool {
        lock(&self.0).ended
    }

    /// Ends every process at once, with whatever it started; no other is started any more.
    pub fn end(&self) {
        let mut groups = lock(&self.0);
        groups.ended = true;
        for group in groups.all.drain(..).filter_map(|group| group.upgrade()) {
            lock(&group).end();
        }
    }
}

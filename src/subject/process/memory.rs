//! Whether a process keeps growing: its resident memory, case by case.
//!
//! It must not judge by one case, nor where the system does not tell. Layer 5.

use std::collections::VecDeque;

/// Replies between two readings that are compared: the least of them counts, so that a case's own
/// tensors do not.
const WINDOW: u64 = 64;
/// Windows in a row that must each lie above the one before. What caches take levels off sooner.
const RISING: usize = 8;
/// Growth over these windows from which it is said (bytes).
const LEAST: u64 = 32 << 20;
/// Growth since the first reply that no cache explains (bytes).
const MOST: u64 = 4 << 30;

/// Resident memory over the replies of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    first: Option<u64>,
    replies: u64,
    /// Least of the window that runs.
    least: Option<u64>,
    /// Least of the last whole windows, each above the one before; `RISING` + 1 at most.
    windows: VecDeque<u64>,
}

impl Watch {
    /// Takes the resident bytes after a reply; answers the growth in bytes and over how many
    /// replies, if it is a leak's.
    pub(super) fn reply(&mut self, resident: u64) -> Option<(u64, u64)> {
        let first = *self.first.get_or_insert(resident);
        self.replies += 1;
        let grown = resident.saturating_sub(first);
        if grown > MOST {
            return Some((grown, self.replies));
        }
        self.least = Some(self.least.map_or(resident, |least| least.min(resident)));
        if !self.replies.is_multiple_of(WINDOW) {
            return None;
        }
        let least = self.least.take().unwrap_or(resident);
        if self.windows.back().is_some_and(|last| least <= *last) {
            self.windows.clear();
        }
        self.windows.push_back(least);
        if self.windows.len() > RISING + 1 {
            self.windows.pop_front();
        }
        let since = self.windows.front().copied().unwrap_or(least);
        let grown = least.saturating_sub(since);
        (self.windows.len() > RISING && grown >= LEAST).then_some((grown, RISING as u64 * WINDOW))
    }
}

/// Processes below one that are looked at: a launcher's program and its workers.
const BELOW: usize = 64;

/// Resident bytes of a process and of those that it started, pages of files left out, which they may share (Linux:
/// `RssAnon` of /proc/PID/status, /proc/PID/task/TID/children).
pub(super) fn resident(pid: u32) -> Option<u64> {
    let mut all = vec![pid];
    let mut sum = own(pid)?;
    let mut at = 0;
    while at < all.len() {
        let started = children(all[at]);
        at += 1;
        for child in started {
            if all.len() < BELOW && !all.contains(&child) {
                all.push(child);
                sum = sum.saturating_add(own(child).unwrap_or(0));
            }
        }
    }
    Some(sum)
}

fn own(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The processes that a process's threads started; none where the system does not tell.
fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaks(readings: impl Iterator<Item = u64>) -> Option<(u64, u64)> {
        let mut watch = Watch::default();
        readings.map(|r| watch.reply(r)).find_map(|found| found)
    }

    #[test]
    fn a_slow_leak_is_found() {
        // 128 KiB a case, beneath a tensor of up to 8 MiB that comes and goes.
        let readings =
            (0..2000).map(|n| (100 << 20) + n * (128 << 10) + (n * 7919 % 8) * (1 << 20));
        let (grown, replies) = leaks(readings).expect("a leak");
        assert!(grown >= LEAST && replies == 512, "{grown} {replies}");
    }

    #[test]
    fn caches_and_cases_of_all_sizes_are_no_leak() {
        let cache = (0..100_000u64).map(|n| (100 << 20) + n.min(300) * (1 << 20));
        assert_eq!(leaks(cache), None);
        // A cache of compiled shapes that takes long to fill.
        let slow = (0..100_000u64).map(|n| (100 << 20) + n.min(20_000) * (16 << 10));
        assert_eq!(leaks(slow), None);
        let sizes = (0..100_000u64).map(|n| (100 << 20) + (n * 7919 % 97) * (4 << 20));
        assert_eq!(leaks(sizes), None);
    }

    #[test]
    fn gigabytes_are_said_at_once() {
        let readings = (0..10u64).map(|n| n * (1 << 30));
        assert_eq!(leaks(readings), Some((5 << 30, 6)));
    }

    #[test]
    fn this_process_has_memory_where_linux_tells() {
        let bytes = resident(std::process::id());
        assert!(!cfg!(target_os = "linux") || bytes.is_some_and(|b| b > 1 << 20));
    }
}

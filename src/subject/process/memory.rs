//! Whether a process keeps growing: its resident memory, case by case.
//!
//! It must not judge by one case, nor by cases of different sizes alone: a heap that records of size break up
//! grows for a while too. Nor where the system does not tell. Layer 5.

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
/// How often one request is repeated where memory seems to grow: what a heap or a cache keeps for it is there after
/// the first, what is lost is lost each time.
pub(super) const REPEATS: u64 = 64;
/// Parts of the repeats, each of which must lie above the one before.
const PARTS: u64 = 4;
/// Repeating one request must show this part of the growth seen a reply: cases differ in size.
const PART_OF_GROWTH: u64 = 8;

/// Growth over a number of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    /// In bytes.
    pub bytes: u64,
    pub replies: u64,
}

/// What memory over cases says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// Cases of different sizes might explain it: one request repeated decides.
    Seems(Growth),
    Leaks(Growth),
}

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
    /// Takes the resident bytes after a reply.
    pub(super) fn reply(&mut self, resident: u64) -> Told {
        let first = *self.first.get_or_insert(resident);
        self.replies += 1;
        let bytes = resident.saturating_sub(first);
        if bytes > MOST {
            let replies = self.replies;
            return Told::Leaks(Growth { bytes, replies });
        }
        self.least = Some(self.least.map_or(resident, |least| least.min(resident)));
        if !self.replies.is_multiple_of(WINDOW) {
            return Told::Nothing;
        }
        let least = self.least.take().unwrap_or(resident);
        if self.windows.back().is_some_and(|last| least <= *last) {
            self.windows.clear();
        }
        self.windows.push_back(least);
        let since = self.windows.front().copied().unwrap_or(least);
        let bytes = least.saturating_sub(since);
        if self.windows.len() <= RISING {
            return Told::Nothing;
        }
        self.windows.pop_front();
        let replies = RISING as u64 * WINDOW;
        match bytes >= LEAST {
            true => Told::Seems(Growth { bytes, replies }),
            false => Told::Nothing,
        }
    }

    /// Begins anew, after a growth that one request repeated did not show.
    pub(super) fn forget(&mut self) {
        self.windows.clear();
    }
}

/// Whether what one request, repeated, left resident shows the growth that cases seemed to have: `readings` are
/// `REPEATS` numbers of bytes.
pub(super) fn confirmed(growth: Growth, readings: &[u64]) -> bool {
    let part = (REPEATS / PARTS) as usize;
    let least: Vec<u64> = readings
        .chunks_exact(part)
        .filter_map(|part| part.iter().copied().min())
        .collect();
    let [Some(first), Some(last)] = [least.first(), least.last()] else {
        return false;
    };
    let rises = least.len() as u64 == PARTS && least.is_sorted_by(|a, b| a < b);
    let repeats = REPEATS - REPEATS / PARTS;
    rises && (last - first) >= growth.bytes / growth.replies.max(1) * repeats / PART_OF_GROWTH
}

/// Processes below one that are looked at: a launcher's program and its workers.
const BELOW: usize = 64;

/// Resident bytes of a process and of those that it started, pages of files left out; of shared memory the most that
/// one of them has, since all may have the same (Linux: `RssAnon` and `RssShmem` of /proc/PID/status, /proc/PID/task/TID/children).
pub(super) fn resident(pid: u32) -> Option<u64> {
    let mut all = vec![pid];
    let (mut sum, mut shared) = own(pid)?;
    let mut at = 0;
    while at < all.len() {
        let started = children(all[at]);
        at += 1;
        for child in started {
            if all.len() < BELOW && !all.contains(&child) {
                all.push(child);
                let (anonymous, common) = own(child).unwrap_or((0, 0));
                sum = sum.saturating_add(anonymous);
                shared = shared.max(common);
            }
        }
    }
    Some(sum.saturating_add(shared))
}

/// Bytes of its own and of shared memory.
fn own(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    Some((bytes("RssAnon:")?, bytes("RssShmem:").unwrap_or(0)))
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

    const MIB: u64 = 1 << 20;

    /// What is told first, of readings.
    fn told(readings: impl Iterator<Item = u64>) -> Told {
        let mut watch = Watch::default();
        let mut told = readings.map(|r| watch.reply(r));
        told.find(|t| *t != Told::Nothing).unwrap_or(Told::Nothing)
    }

    #[test]
    fn a_slow_leak_is_found() {
        // 128 KiB a case, beneath a tensor of up to 8 MiB that comes and goes.
        let at = |n: u64| 100 * MIB + n * (128 << 10) + (n * 7919 % 8) * MIB;
        let Told::Seems(growth) = told((0..2000).map(at)) else {
            panic!("no leak");
        };
        assert!(growth.bytes >= LEAST && growth.replies == 512, "{growth:?}");
        let again: Vec<u64> = (0..REPEATS).map(|n| 200 * MIB + n * (128 << 10)).collect();
        assert!(confirmed(growth, &again));
        // A small case loses less.
        let small: Vec<u64> = (0..REPEATS).map(|n| 200 * MIB + n * (20 << 10)).collect();
        assert!(confirmed(growth, &small));
    }

    /// A heap in pieces: each case larger than those before leaves something, repeating one leaves nothing.
    #[test]
    fn records_of_size_are_no_leak() {
        let Told::Seems(growth) = told((0..2000).map(|n| 100 * MIB + n * (100 << 10))) else {
            panic!("it does not seem to grow");
        };
        let flat = [300 * MIB; REPEATS as usize];
        assert!(!confirmed(growth, &flat));
        // What the first repeat takes, and noise of pages.
        let once: Vec<u64> = (0..REPEATS)
            .map(|n| 300 * MIB + n.min(1) * 4 * MIB + n % 3 * 4096)
            .collect();
        assert!(!confirmed(growth, &once));
        let pages: Vec<u64> = (0..REPEATS).map(|n| 300 * MIB + n * 4096).collect();
        assert!(!confirmed(growth, &pages));
        assert!(!confirmed(growth, &[]));
    }

    #[test]
    fn caches_and_cases_of_all_sizes_do_not_seem_to_grow() {
        let cache = (0..100_000u64).map(|n| 100 * MIB + n.min(300) * MIB);
        assert_eq!(told(cache), Told::Nothing);
        // A cache of compiled shapes that takes long to fill.
        let slow = (0..100_000u64).map(|n| 100 * MIB + n.min(20_000) * (16 << 10));
        assert_eq!(told(slow), Told::Nothing);
        let sizes = (0..100_000u64).map(|n| 100 * MIB + (n * 7919 % 97) * 4 * MIB);
        assert_eq!(told(sizes), Told::Nothing);
    }

    #[test]
    fn gigabytes_are_said_at_once() {
        let growth = Growth {
            bytes: 5 << 30,
            replies: 6,
        };
        let readings = (0..10u64).map(|n| n * (1 << 30));
        assert_eq!(told(readings), Told::Leaks(growth));
    }

    #[test]
    fn this_process_has_memory_where_linux_tells() {
        let held = std::hint::black_box(vec![1u8; 2 << 20]);
        let bytes = resident(std::process::id());
        drop(held);
        assert!(!cfg!(target_os = "linux") || bytes.is_some_and(|b| b > 1 << 20));
    }
}

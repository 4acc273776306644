//! How many processes and threads a user has, of whom the kernel says no more than the limit (`RLIMIT_NPROC`).
//!
//! Runs in: the launcher of a user, not that of root. Sees: files of `/proc`. Never: looks at more than
//! [`LOOKED_AT_MAX`] processes, or looks while the machine has far fewer threads than the user may have.

use std::fs;
use std::time::{Duration, Instant};

use crate::limits::{self, ProcessLimit};

/// LIMIT: how old the count may be. What the launcher has started since is added.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// LIMIT: processes that are looked at, each of which takes some hundredths of a millisecond.
const LOOKED_AT_MAX: usize = 2048;

/// What was counted last.
#[derive(Debug, Default)]
pub(crate) struct UserThreads {
    /// When, how many there were, and the last process that the launcher had started.
    counted: Option<(Instant, Option<u64>, u64)>,
}

impl UserThreads {
    /// The limit with how many there are, if there may be nearly as many; `serial` is that of the launcher's last
    /// process.
    pub(crate) fn complete(&mut self, limit: ProcessLimit, now: Instant, serial: u64) -> ProcessLimit {
        let of_machine = limits::threads_of_machine();
        if of_machine.is_some_and(|threads| threads.saturating_mul(2) < limit.most) {
            self.counted = None;
            return limit;
        }
        let is_old = |at: Instant| now.saturating_duration_since(at) >= COUNT_EVERY;
        if self.counted.is_none_or(|(at, ..)| is_old(at)) {
            self.counted = Some((now, count(rustix::process::getuid().as_raw()), serial));
        }
        let (_, count, then) = self.counted.unwrap_or((now, None, serial));
        ProcessLimit { now: count.map(|count| count + serial.saturating_sub(then)), ..limit }
    }
}

/// The threads of a user; nothing where there are too many processes to look at.
fn count(uid: u32) -> Option<u64> {
    let folders = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let mut threads = 0;
    for (index, folder) in folders.filter(|folder| is_process(&folder.file_name())).enumerate() {
        if index >= LOOKED_AT_MAX {
            return None;
        }
        // One may end meanwhile.
        let status = fs::read_to_string(folder.path().join("status")).unwrap_or_default();
        threads += threads_in(&status, uid);
    }
    Some(threads)
}

/// The threads of a process, if it is this user's.
fn threads_in(status: &str, uid: u32) -> u64 {
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    number("Uid:").filter(|real| *real == uid.into()).and_then(|_| number("Threads:")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Holder;

    #[test]
    fn threads_of_one_user_are_counted() {
        let status = "Name:\tx\nUid:\t7\t8\t9\t9\nThreads:\t3\n";
        assert_eq!((threads_in(status, 7), threads_in(status, 8), threads_in("", 7)), (3, 0, 0));
        let uid = rustix::process::getuid().as_raw();
        let before = count(uid).unwrap();
        std::thread::scope(|scope| {
            let (hold, held) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || held.recv());
            assert!(count(uid).unwrap() > 1, "{before}");
            drop(hold);
        });
    }

    #[test]
    fn nobody_counts_where_the_limit_is_far_away_and_others_count_once_in_a_while() {
        let (mut threads, now) = (UserThreads::default(), Instant::now());
        let limit = |most| ProcessLimit { most, now: None, holder: Holder::User };
        assert_eq!(threads.complete(limit(1 << 40), now, 5).now, None);
        let first = threads.complete(limit(1), now, 5).now.unwrap();
        assert_eq!(threads.complete(limit(1), now, 9).now, Some(first + 4), "those that were started since");
        let later = now + COUNT_EVERY;
        threads.complete(limit(1), later, 9);
        assert_eq!(threads.counted.map(|(at, _, serial)| (at, serial)), Some((later, 9)));
    }
}

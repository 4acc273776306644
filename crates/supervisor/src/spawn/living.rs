//! Processes of this machine that live, and the end of one that is exactly the one that was meant.
//!
//! Runs in: the launcher, as root. Sees: `/proc/PID/status`, where a process chooses nothing but its name. Never:
//! signals a number, which could be another process by then.

use std::collections::HashSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// What a launcher and a guard are called. Only one that runs as root is believed.
const LAUNCHERS: [&str; 2] = ["bulkheadd", "bulkhead-guard"];
/// LIMIT: how far up a launcher is looked for.
const DEPTH_MAX: usize = 64;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its number.
    pub pid: u32,
    parent: u32,
    /// Real, effective, saved, of the file system.
    uids: [u32; 4],
    is_launcher: bool,
    /// It has ended, and nobody has waited for it.
    is_zombie: bool,
}

impl Living {
    /// The process of this number; `None` if there is none, or it has ended and nobody has waited for it.
    pub fn of(pid: u32) -> Option<Self> {
        Self::seen(pid).filter(|process| !process.is_zombie)
    }

    fn seen(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?)
    }

    fn parse(pid: u32, status: &str) -> Option<Self> {
        let field = |name| status.lines().find_map(|line: &str| Some(line.strip_prefix(name)?.trim_start()));
        // One whose first thread has ended looks like a zombie, and goes on in the others.
        let threads: u32 = field("Threads:")?.parse().ok()?;
        let is_zombie = field("State:")?.starts_with(['Z', 'X']) && threads <= 1;
        let mut uids = field("Uid:")?.split_whitespace().map(str::parse);
        let mut next = || uids.next()?.ok();
        let uids = [next()?, next()?, next()?, next()?];
        let is_launcher = uids == [0; 4] && field("Name:").is_some_and(|name| LAUNCHERS.contains(&name));
        Some(Self { pid, parent: field("PPid:")?.parse().ok()?, uids, is_launcher, is_zombie })
    }

    /// Any uid of the range that it has.
    pub fn uid_in(&self, range: &RangeInclusive<u32>) -> Option<u32> {
        self.uids.into_iter().find(|uid| range.contains(uid))
    }

    /// All uids that it has: real, effective, saved, of the file system.
    pub fn uids(&self) -> [u32; 4] {
        self.uids
    }

    /// Its uid, if it has no other: those that we start cannot change theirs.
    pub fn only_uid(&self) -> Option<u32> {
        self.uids.iter().all(|&uid| uid == self.uids[0]).then_some(self.uids[0])
    }

    /// Whether a launcher that lives has started it, or what has started it.
    pub fn has_launcher(&self) -> bool {
        let above = |process: &Self| Self::of(process.parent);
        std::iter::successors(above(self), above).take(DEPTH_MAX).any(|process| process.is_launcher)
    }

    /// Sends it a signal, if it is still what `is_it` wants; returns whether it was sent.
    pub fn signal(&self, signal: Signal, is_it: impl Fn(&Self) -> bool) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return false;
        };
        // Looked at again once it is held: from here on its number cannot become another's unseen.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        Self::of(self.pid).is_some_and(|now| is_it(&now)) && pidfd_send_signal(&held, signal).is_ok()
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Everything that lives, as far as it can be seen: what ends meanwhile is gone, and so may be what it has made.
pub fn all() -> impl Iterator<Item = Living> {
    pids().filter_map(Living::of)
}

/// What was not there when this was asked before.
pub fn fresh(seen: &mut HashSet<u32>) -> impl Iterator<Item = Living> {
    pids().filter(|pid| seen.insert(*pid)).filter_map(Living::of)
}

/// Whether anything has this uid, be it a zombie. The kernel looks at all at once: nothing escapes that makes another
/// one and ends.
pub fn is_used(uid: u32) -> bool {
    let found = rustix::process::getpriority_user(rustix::process::Uid::from_raw(uid));
    // Nothing else says that there is none.
    !matches!(found, Err(rustix::io::Errno::SRCH))
}

/// Whether a process that has ended, and that nobody has waited for, has this uid.
pub fn has_zombie(uid: u32) -> bool {
    pids().filter_map(Living::seen).any(|process| process.is_zombie && process.uids.contains(&uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str, state: &str, threads: u32, uids: &str) -> String {
        format!(
            "Name:\t{name}\nState:\t{state}\nPid:\t5\nPPid:\t4\nUid:\t{uids}\nGid:\t9\nThreads:\t{threads}\n"
        )
    }

    #[test]
    fn a_process_has_any_of_its_uids_and_a_zombie_none() {
        let found = |state, threads, uids| {
            let found = Living::parse(5, &status("x", state, threads, uids)).unwrap();
            found.uid_in(&(100..=199)).filter(|_| !found.is_zombie)
        };
        assert_eq!(found("S (sleeping)", 1, "0\t0\t150\t0"), Some(150));
        assert_eq!(found("S (sleeping)", 1, "0\t0\t200\t0"), None);
        assert_eq!(found("Z (zombie)", 1, "150\t150\t150\t150"), None);
        assert_eq!(found("Z (zombie)", 2, "150\t150\t150\t150"), Some(150), "its other threads run");
    }

    #[test]
    fn one_with_two_uids_has_none_of_its_own() {
        let uid = |uids| Living::parse(5, &status("x", "S", 1, uids)).unwrap().only_uid();
        assert_eq!((uid("7\t7\t7\t7"), uid("0\t7\t0\t7")), (Some(7), None));
    }

    #[test]
    fn a_launcher_is_roots() {
        let is = |name, uids| Living::parse(5, &status(name, "S", 1, uids)).unwrap().is_launcher;
        assert!(is("bulkhead-guard", "0\t0\t0\t0"));
        assert!(is("bulkheadd", "0\t0\t0\t0") && !is("bulkheadd", "7\t7\t7\t7") && !is("sh", "0\t0\t0\t0"));
    }

    #[test]
    fn only_the_one_that_was_meant_is_signalled() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let living = Living::of(child.id()).unwrap();
        assert!(!living.signal(Signal::KILL, |_| false));
        assert!(living.signal(Signal::KILL, |now| now.pid == living.pid));
        child.wait().unwrap();
        assert!(!living.signal(Signal::KILL, |_| true));
    }
}

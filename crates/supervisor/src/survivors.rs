//! What an earlier start of this server has left: it is ended before its uids are given away.
//!
//! Runs in: the launcher, as root. Sees: processes' numbers and uids, the table of uids, the kernel's lists of control
//! groups. Never: ends what is another's: a process under a uid that this server has not given out, under an account of
//! the machine, or below a launcher that lives; unless it is in a control group of ours.
//!
//! Whatever a launcher starts ends with it (`PR_SET_PDEATHSIG`); this is for what has cut that tie.

use std::collections::HashSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Supervisor;
use crate::error::{Error, at};
use crate::process::Process;
use crate::spawn::cgroup::Group;
use crate::spawn::cgroup_record::CgroupRecord;
use crate::spawn::living::{self, Living};
use crate::spawn::uids::{Uids, machine_users};

/// How long what ends by itself has for that.
const GRACE: Duration = Duration::from_millis(200);
/// LIMIT: how long what was left may take to end, before the start is refused.
const LEFT_MAX: Duration = Duration::from_secs(5);
/// LIMIT: how long the launcher waits, while it serves, for what one process has left.
const REST_MAX: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(20);
/// LIMIT: how long is looked for what ends before it is seen.
const CATCH_MAX: Duration = Duration::from_millis(300);
/// LIMIT: rounds in which processes only are stopped: those that multiply reach their limit, as stopped ones count.
const STOPS_MAX: usize = 20;
/// LIMIT: lines about what was ended.
const TOLD_MAX: usize = 20;

/// What was ended, for the log.
#[derive(Debug, Default)]
pub struct Ended {
    seen: HashSet<u32>,
    lines: Vec<String>,
}

impl Ended {
    fn add(&mut self, process: &Living, what: &str) {
        if self.seen.insert(process.pid) && self.lines.len() < TOLD_MAX {
            let uid =
                process.only_uid().map_or_else(|| "several uids".to_owned(), |uid| format!("uid {uid}"));
            let what = what.escape_debug();
            self.lines.push(format!("process {} ({uid}, {what}) was left running and is ended", process.pid));
        }
    }

    /// A line for each, if they are not too many.
    pub fn lines(mut self) -> Vec<String> {
        if self.seen.len() > self.lines.len() {
            self.lines.push(format!("{} more such processes are ended", self.seen.len() - self.lines.len()));
        }
        self.lines
    }
}

/// Ends what lives under the uids that `table` had given out before this start, and waits for the end of everything
/// else of the range.
///
/// # Errors
/// Something of the range lives on that is not ours, or does not end.
pub fn end_under(range: &RangeInclusive<u32>, table: &Uids, ended: &mut Ended) -> Result<(), Error> {
    let began = Instant::now();
    let owner = |process: &Living| process.only_uid().and_then(|uid| table.owner(uid));
    let is_ours = |process: &Living| owner(process).is_some() && !process.has_launcher();
    let mut pass = Pass::default();
    loop {
        let acts = began.elapsed() >= GRACE;
        let (mut ours, mut others) = (Vec::new(), None);
        for process in living::all() {
            let Some(uid) = process.uid_in(range) else { continue };
            if process.has_launcher() {
                return Err(Error::UidInUse { range: range.clone(), uid, pid: process.pid });
            } else if !is_ours(&process) {
                others = others.or(Some((uid, process.pid)));
            } else {
                // At once: one that makes another and ends is another one a moment later.
                if acts {
                    pass.stop(&process, is_ours);
                }
                ours.push(process);
            }
        }
        let left = others
            .or_else(|| ours.first().map(|process| (process.uid_in(range).unwrap_or_default(), process.pid)));
        let (uid, pid) = match left.or_else(|| Some((unseen(range, table)?, 0))) {
            None => return Ok(()),
            Some((uid, 0)) if !catch(is_ours) && living::has_zombie(uid) => return Ok(()),
            Some(left) => left,
        };
        if began.elapsed() >= LEFT_MAX {
            return Err(Error::UidInUse { range: range.clone(), uid, pid });
        }
        if acts {
            pass.end(&ours, is_ours, |process| ended.add(process, owner(process).unwrap_or_default()));
        }
        std::thread::sleep(PAUSE);
    }
}

/// A uid that was given out and that something has.
fn unseen(range: &RangeInclusive<u32>, table: &Uids) -> Option<u32> {
    table.given().find(|uid| range.contains(uid) && living::is_used(*uid))
}

/// Stops the next process that is ours, of those that make another one and end before they are seen; returns whether
/// there was one.
fn catch(is_ours: impl Fn(&Living) -> bool) -> bool {
    let until = Instant::now() + CATCH_MAX;
    let mut seen = HashSet::new();
    living::fresh(&mut seen).for_each(drop);
    let mut found = false;
    while !found && Instant::now() < until {
        found = living::fresh(&mut seen)
            .filter(&is_ours)
            .filter(|process| process.signal(Signal::STOP, &is_ours))
            .count()
            > 0;
    }
    found
}

/// Ends what lives under one uid, of which nothing of ours is meant to live; returns how many could be seen.
pub fn end_rest_under(uid: u32) -> usize {
    let until = Instant::now() + REST_MAX;
    let is_it = |process: &Living| process.only_uid() == Some(uid);
    let mut seen = HashSet::new();
    let mut pass = Pass::default();
    loop {
        let mut found = Vec::new();
        for process in living::all().filter(is_it) {
            pass.stop(&process, is_it);
            found.push(process);
        }
        if found.is_empty() || Instant::now() >= until {
            return seen.len();
        }
        pass.end(&found, is_it, |process| {
            seen.insert(process.pid);
        });
        std::thread::sleep(PAUSE / 4);
    }
}

/// One round after the other: first all are stopped, so that none makes another one, then all are ended.
#[derive(Debug, Default)]
struct Pass {
    stopped: HashSet<u32>,
    has_new: bool,
    rounds: usize,
}

impl Pass {
    /// Stops a process that was not seen before.
    fn stop(&mut self, process: &Living, is_it: impl Fn(&Living) -> bool) {
        if self.stopped.insert(process.pid) {
            self.has_new = true;
            process.signal(Signal::STOP, is_it);
        }
    }

    /// Ends all, if there were no new ones in this round, or for too long.
    fn end(&mut self, found: &[Living], is_it: impl Fn(&Living) -> bool, mut on_end: impl FnMut(&Living)) {
        self.rounds += 1;
        if !std::mem::take(&mut self.has_new) || self.rounds > STOPS_MAX {
            found.iter().filter(|process| process.signal(Signal::KILL, &is_it)).for_each(&mut on_end);
        }
    }
}

/// Ends what is in the control groups of the launcher before; returns where this one's are to be written down.
///
/// # Errors
/// Something in them does not end, or they are not known.
pub fn end_left_groups(state: &Path, ended: &mut Ended) -> Result<CgroupRecord, Error> {
    let path = state.join("control_groups");
    let mut record = CgroupRecord::open(state).map_err(at("lock", &path))?;
    let groups = record.left().map_err(at("read", &path))?;
    end_in(&groups, GRACE, LEFT_MAX, |process, group| ended.add(process, group))
        .map_err(|pid| Error::GroupInUse { pid })?;
    Ok(record)
}

/// The same for what one process of ours has left in its groups; returns how many there were.
pub fn end_rest_in(groups: &[PathBuf]) -> usize {
    let mut seen = HashSet::new();
    let _ = end_in(groups, Duration::ZERO, REST_MAX, |process, _| {
        seen.insert(process.pid);
    });
    seen.len()
}

fn end_in(
    tops: &[PathBuf],
    grace: Duration,
    left_max: Duration,
    mut on_end: impl FnMut(&Living, &str),
) -> Result<(), u32> {
    let began = Instant::now();
    loop {
        let mut groups = Vec::new();
        tops.iter().for_each(|top| below(top, &mut groups));
        let found: Vec<(u32, &PathBuf)> =
            groups.iter().flat_map(|group| members(group).into_iter().map(move |pid| (pid, group))).collect();
        let Some(&(first, _)) = found.first() else {
            return Ok(());
        };
        // Whoever has put this launcher there means the others to go on as well.
        if found.iter().any(|(pid, _)| *pid == std::process::id()) || began.elapsed() >= left_max {
            return Err(first);
        }
        if began.elapsed() >= grace {
            // Nothing new is made there any more.
            groups.iter().for_each(|group| drop(fs::write(group.join("pids.max"), "0")));
            for (pid, group) in found {
                let name = group.file_name().and_then(|name| name.to_str()).unwrap_or("?");
                let is_there = |now: &Living| members(group).contains(&now.pid);
                if let Some(process) = Living::of(pid)
                    && process.signal(Signal::KILL, is_there)
                {
                    on_end(&process, name);
                }
            }
            // Version 2 also reaches what cannot be named from here.
            tops.iter().for_each(|top| drop(fs::write(top.join("cgroup.kill"), "1")));
        }
        std::thread::sleep(PAUSE.min(left_max / 10));
    }
}

/// Who is in a group; nobody, if it is gone.
fn members(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process of another PID namespace, which cannot be named.
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

fn below(group: &Path, found: &mut Vec<PathBuf>) {
    found.push(group.to_owned());
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), found);
        }
    }
}

impl Supervisor {
    /// Ends what a process of ours has left that has just ended, before anything else gets its uid. A PID namespace has
    /// done so already; this is for jails without one.
    pub fn end_rest(&mut self, slot: usize, process: &Process) {
        let Some(identity) = self.specs[slot].identity.filter(|_| !self.has_pid_namespaces()) else {
            return;
        };
        let groups = process.group.as_ref().map_or(&[][..], Group::paths);
        let shares_uid = |other: &Process| self.specs[other.slot].identity == Some(identity);
        // An account of the machine has processes that are none of ours.
        let is_account =
            machine_users().map(|users| users.contains(&identity.id())).unwrap_or_else(|error| {
                self.log.warning(format!(
                    "{error}; what a process has left under uid {} is not ended",
                    identity.id()
                ));
                true
            });
        let left = match groups {
            [] if is_account || self.processes.values().any(shares_uid) => 0,
            [] => end_rest_under(identity.id()),
            groups => end_rest_in(groups),
        };
        if left > 0 {
            let title = self.specs[slot].title();
            let left =
                if left == 1 { "1 process, which is".into() } else { format!("{left} processes, which are") };
            self.log.warning(format!("{title} (pid {}) left {left} ended", process.child.pid));
        }
    }

    fn has_pid_namespaces(&self) -> bool {
        !self.missing().contains(&"pid namespace")
    }
}

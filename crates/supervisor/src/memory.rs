//! How much memory there is still room for: in the control groups that the launcher is in, or on the machine.
//!
//! Runs in: the launcher, as root. Sees: the kernel's figures. Never: looks more often than every [`LOOK_EVERY`].
//!
//! Where a group has a limit, as that of a container or of a unit with `MemoryMax=`, the limit decides: the kernel
//! kills when the limit is reached, whatever the machine has. Files that lie in memory and that nobody has used lately
//! count as room, as the kernel gives them up first.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::limits::{Bound, RAISE_MEMORY};
use crate::spawn::cgroup;

/// LIMIT: how old the answer may be: reading takes some hundredths of a millisecond.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// With less room than this part of all, in percent, processes that nobody needs go quickly.
const SHORT: u64 = 25;
/// With less than this, those go as well that have been without a connection for a moment.
const SCARCE: u64 = 12;
/// With less than this, nothing starts on demand while others go.
const FULL: u64 = 6;
/// LIMIT: memory that sites leave to the launcher, gates and roles, at the most: of a machine, [`FULL`] of it is more
/// than these need.
const RESERVE_MAX: u64 = 64 << 20;

/// The file with the limit of a group, in each version.
const LIMIT_FILES: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

/// How much room there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemoryRoom {
    Full,
    Scarce,
    Short,
    #[default]
    Ample,
}

/// Where the room is looked up.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The control group that the launcher is in, and those around it.
    groups: Vec<PathBuf>,
    /// What was free, and of how much, and when that was looked up.
    last: Option<(Instant, Option<(u64, u64)>)>,
}

impl Memory {
    /// Of this process.
    pub(crate) fn of_launcher() -> Self {
        Self { groups: cgroup::own_groups(&["memory.current", "memory.usage_in_bytes"]), last: None }
    }

    /// How much room there is, or was a moment ago.
    pub(crate) fn room(&mut self, now: Instant) -> MemoryRoom {
        self.free_lately(now).map_or(MemoryRoom::Ample, |(free, all)| room_of(free, all))
    }

    /// What is free, if that is less than so many halves of what is kept for the launcher, gates and roles; what is
    /// kept, and of how much.
    pub(crate) fn shortage(&mut self, now: Instant, halves: u64) -> Option<(u64, u64, u64)> {
        let (free, all) = self.free_lately(now)?;
        let reserve = reserve_of(all);
        (free < reserve.saturating_mul(halves) / 2).then_some((free, reserve, all))
    }

    fn free_lately(&mut self, now: Instant) -> Option<(u64, u64)> {
        match self.last {
            Some((at, free)) if now.saturating_duration_since(at) < LOOK_EVERY => free,
            _ => {
                let free = self.free();
                self.last = Some((now, free));
                free
            }
        }
    }

    /// How much memory there may be: the smallest limit, or what the machine has.
    pub(crate) fn bound(&self) -> Option<Bound> {
        let machine = || free_of_machine(&fs::read_to_string("/proc/meminfo").ok()?).map(|(_, all)| all);
        let of_groups = self.groups.iter().filter_map(|group| {
            let file = LIMIT_FILES.iter().map(|name| group.join(name)).find(|path| path.exists())?;
            Some((limit_of(group)?, file.display().to_string()))
        });
        let of_machine = machine().map(|all| (all, "MemTotal".to_owned()));
        let (most, from) = of_groups.chain(of_machine).min()?;
        Some(Bound { most, from, whose: "and".into(), remedy: RAISE_MEMORY.into() })
    }

    /// The smallest of the limits, in bytes, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.groups.iter().filter_map(|group| limit_of(group)).min()
    }

    /// What is free, and of how much: where there is least.
    fn free(&self) -> Option<(u64, u64)> {
        let limited = self.groups.iter().filter_map(|group| free_of(group, limit_of(group)?));
        let least = limited.min_by_key(|(free, all)| free.saturating_mul(1000) / (*all).max(1));
        least.or_else(|| free_of_machine(&fs::read_to_string("/proc/meminfo").ok()?))
    }

    /// How many processes the kernel has killed beside those that have groups of their own: in the launcher's group if
    /// that is counted, else on the machine.
    pub(crate) fn kills(&self) -> u64 {
        let machine = || figure(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill");
        self.groups.first().and_then(|group| kills_of(group)).or_else(machine).unwrap_or(0)
    }
}

/// How often the kernel has killed something of ours.
#[derive(Debug, Default)]
pub(crate) struct OomKills {
    /// Since the first start of the server.
    pub(crate) all: u32,
    /// What was counted for processes without groups of their own, when it was last looked.
    pub(crate) shared: u64,
}

impl OomKills {
    /// After so many kills of others.
    pub(crate) fn after(shared: u64) -> Self {
        Self { all: 0, shared }
    }
}

/// How many processes of a control group the kernel has killed for want of memory, if the group counts that.
pub(crate) fn kills_of(group: &Path) -> Option<u64> {
    let count = |file| figure(&fs::read_to_string(group.join(file)).ok()?, "oom_kill");
    count("memory.events").or_else(|| count("memory.oom_control"))
}

/// Whether a control group has reached a limit of its own.
pub(crate) fn has_reached_limit(group: &Path) -> bool {
    let count = |file, name| figure(&fs::read_to_string(group.join(file)).ok()?, name);
    let failures = || cgroup::number_in(group, &["memory.failcnt"]);
    count("memory.events", "oom").or_else(failures).is_some_and(|times| times > 0)
}

fn room_of(free: u64, all: u64) -> MemoryRoom {
    let is_below = |percent| free.saturating_mul(100) < all.saturating_mul(percent);
    match () {
        () if is_below(FULL) => MemoryRoom::Full,
        () if is_below(SCARCE) => MemoryRoom::Scarce,
        () if is_below(SHORT) => MemoryRoom::Short,
        () => MemoryRoom::Ample,
    }
}

/// What sites leave of so much memory.
fn reserve_of(all: u64) -> u64 {
    (all.saturating_mul(FULL) / 100).min(RESERVE_MAX)
}

/// How much memory there has to be for always-on sites to have so much, and to leave the rest to roles.
pub(crate) fn all_for(used: u64) -> u64 {
    used + (used.saturating_mul(FULL) / (100 - FULL) + 1).min(RESERVE_MAX)
}

/// The number behind a name.
fn figure(figures: &str, name: &str) -> Option<u64> {
    let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', ':']))?;
    line.split_whitespace().next()?.parse().ok()
}

/// In bytes; the kernel says it in units of 1,024.
fn free_of_machine(meminfo: &str) -> Option<(u64, u64)> {
    let bytes = |name| figure(meminfo, name).map(|kib| kib << 10);
    bytes("MemAvailable").zip(bytes("MemTotal"))
}

/// The limit of a group; version 2 says `max` for none, and version 1 a number that no machine has.
fn limit_of(group: &Path) -> Option<u64> {
    cgroup::number_in(group, &LIMIT_FILES).filter(|limit| *limit < 1 << 60)
}

/// What is free below a limit, and the limit.
fn free_of(group: &Path, limit: u64) -> Option<(u64, u64)> {
    let used = cgroup::number_in(group, &["memory.current", "memory.usage_in_bytes"])?;
    let free = limit.saturating_sub(used);
    if room_of(free, limit) == MemoryRoom::Ample {
        return Some((free, limit));
    }
    // The kernel adds these up for the question alone.
    let parts = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let unused = figure(&parts, "total_inactive_file").or_else(|| figure(&parts, "inactive_file"));
    Some((limit.min(free + unused.unwrap_or(0)), limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_a_part_of_all() {
        let rooms = [59, 60, 119, 120, 249, 250].map(|free| room_of(free, 1000));
        assert_eq!(
            rooms,
            [
                MemoryRoom::Full,
                MemoryRoom::Scarce,
                MemoryRoom::Scarce,
                MemoryRoom::Short,
                MemoryRoom::Short,
                MemoryRoom::Ample
            ]
        );
        let figures = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: 249 kB\n";
        assert_eq!(free_of_machine(figures), Some((249 << 10, 1000 << 10)));
        assert!(free_of_machine("MemTotal: 1000 kB\n").is_none(), "a kernel may not say it");
    }

    /// A folder with files as those of a group.
    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    #[test]
    fn the_limit_of_a_group_decides_in_both_versions() {
        let one = group(&[
            ("memory.limit_in_bytes", "1000\n"),
            ("memory.usage_in_bytes", "990\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 90\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            ("memory.failcnt", "7\n"),
        ]);
        let two = group(&[
            ("memory.max", "1000\n"),
            ("memory.current", "950\n"),
            ("memory.stat", "anon 900\ninactive_file 0\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 2\noom_group_kill 0\n"),
        ]);
        let open = group(&[("memory.max", "max\n"), ("memory.current", "950\n")]);
        let never =
            group(&[("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.usage_in_bytes", "1\n")]);
        let memory = |groups: &[&tempfile::TempDir]| Memory {
            groups: groups.iter().map(|of| of.path().into()).collect(),
            last: None,
        };
        assert_eq!(memory(&[&open, &one]).free(), Some((100, 1000)));
        assert_eq!(memory(&[&one, &two, &never]).free(), Some((50, 1000)), "where there is least");
        assert_eq!(memory(&[&two]).room(Instant::now()), MemoryRoom::Full);
        assert_eq!((memory(&[&one]).limit(), memory(&[&open, &never]).limit()), (Some(1000), None));
        assert_eq!(
            (kills_of(one.path()), kills_of(two.path()), kills_of(open.path())),
            (Some(3), Some(2), None)
        );
        assert_eq!((has_reached_limit(one.path()), has_reached_limit(two.path())), (true, false));
    }

    #[test]
    fn sites_leave_a_part_of_it_and_of_a_machine_no_more_than_roles_need() {
        assert_eq!((reserve_of(1000), reserve_of(64 << 30)), (60, RESERVE_MAX));
        for used in [1, 940, 1 << 30, 64 << 30] {
            let all = all_for(used);
            assert!((used..=used + 2).contains(&(all - reserve_of(all))), "{used}");
        }
        let group = group(&[("memory.max", "1000"), ("memory.current", "935")]);
        let mut memory = Memory { groups: vec![group.path().into()], last: None };
        let now = Instant::now();
        assert_eq!((memory.shortage(now, 2), memory.shortage(now, 4)), (None, Some((65, 60, 1000))));
        let bound = memory.bound().unwrap();
        assert_eq!((bound.most, bound.from), (1000, group.path().join("memory.max").display().to_string()));
        fs::write(group.path().join("memory.current"), "950").unwrap();
        assert_eq!(memory.shortage(now + LOOK_EVERY, 2), Some((50, 60, 1000)));
        assert_eq!(memory.shortage(now + LOOK_EVERY, 1), None, "for a successor");
    }

    #[test]
    fn it_is_not_looked_all_the_time() {
        let group = group(&[("memory.max", "1000"), ("memory.current", "0")]);
        let mut memory = Memory { groups: vec![group.path().into()], last: None };
        let now = Instant::now();
        assert_eq!(memory.room(now), MemoryRoom::Ample);
        fs::write(group.path().join("memory.current"), "1000").unwrap();
        assert_eq!(memory.room(now), MemoryRoom::Ample);
        assert_eq!(memory.room(now + LOOK_EVERY), MemoryRoom::Full);
    }
}

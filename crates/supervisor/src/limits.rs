//! Limits of processes and descriptors that the launcher was given: how much is left, and how to raise them.
//!
//! Runs in: the launcher, as root, the guard, and `bulkhead check`. Sees: the kernel's figures. Never: changes a limit.
//!
//! `RLIMIT_NPROC` counts the processes and threads of one user. Root has no limit of its own; the processes of sites
//! have uids of their own, each with what its jail says, but no more than the launcher was given.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::spawn::cgroup;

/// How a limit of processes of a control group is raised.
pub(crate) const RAISE_PROCESSES: &str = "raise `TasksMax=` of the unit, or `pids.max`";
/// How that of descriptors is.
pub(crate) const RAISE_DESCRIPTORS: &str = "raise `LimitNOFILE=` of the unit, or `ulimit -Hn`";
/// How a limit of memory is raised.
pub(crate) const RAISE_MEMORY: &str =
    "raise `MemoryMax=` of the unit, or the memory of the container or machine";

/// How that of a user is.
const RAISE_USER: &str = "raise `LimitNPROC=` of the unit, or `ulimit -Hu`";
/// How many descriptors one process may have, whatever its limit.
const NR_OPEN: &str = "/proc/sys/fs/nr_open";

/// A limit of something that a server needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// How much there may be.
    pub most: u64,
    /// Where that is written: a file of a control group, a setting of the kernel, or a resource limit.
    pub from: String,
    /// Whose limit it is, as a part of a sentence.
    pub(crate) whose: String,
    /// How it is raised.
    pub remedy: String,
}

/// A resource of which there is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Processes and threads.
    Processes,
    /// Descriptors of the launcher.
    Descriptors,
    /// Memory.
    Memory,
}

impl Lack {
    /// What it is that there is not enough of, and what to raise, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Processes => "processes: raise `TasksMax=`, `kernel.pid_max`",
            Self::Descriptors => "descriptors: raise `LimitNOFILE=`",
            Self::Memory => "memory: raise `MemoryMax=`, or have less running",
        }
    }

    /// Of what a failure of the kernel's says that there is not enough; `None` for another failure. `EAGAIN` of
    /// anything but the call that makes a process says something else.
    pub(crate) fn of(source: &io::Error, makes_process: bool) -> Option<Self> {
        match Errno::from_io_error(source)? {
            Errno::AGAIN if makes_process => Some(Self::Processes),
            Errno::MFILE | Errno::NFILE => Some(Self::Descriptors),
            Errno::NOMEM => Some(Self::Memory),
            _ => None,
        }
    }
}

/// Whose limit one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A control group.
    Group(PathBuf),
    /// The kernel, by a setting of this name.
    Kernel(&'static str),
    /// The user of a server that was not started as root.
    User,
    /// Each uid of a server that was started as root.
    Uid,
}

/// A limit of processes and threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessLimit {
    pub(crate) most: u64,
    /// How many there are; `None` where only those of this server are known.
    pub(crate) now: Option<u64>,
    pub(crate) holder: Holder,
}

impl Holder {
    /// What the operator can do about the limit.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::Group(_) => RAISE_PROCESSES.into(),
            Self::Kernel(setting) => format!("raise `{setting}` (sysctl)"),
            Self::User | Self::Uid => RAISE_USER.into(),
        }
    }

    /// Where the limit is written.
    fn place(&self) -> String {
        match self {
            Self::Group(path) => path.join("pids.max").display().to_string(),
            Self::Kernel(setting) => (*setting).into(),
            Self::User | Self::Uid => "RLIMIT_NPROC".into(),
        }
    }
}

impl From<ProcessLimit> for Bound {
    fn from(ProcessLimit { most, holder, .. }: ProcessLimit) -> Self {
        Self { most, from: holder.place(), whose: format!("and {holder}"), remedy: holder.remedy() }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(path) => write!(f, "the control group {}", path.display()),
            Self::Kernel(_) => f.write_str("the machine"),
            Self::User => f.write_str("this user"),
            Self::Uid => f.write_str("each uid"),
        }
    }
}

/// What to raise where a limit of processes or descriptors was reached; `None` for another failure.
pub(crate) fn remedy(source: &io::Error) -> Option<String> {
    match Errno::from_io_error(source)? {
        Errno::AGAIN => Some(of_processes()),
        Errno::MFILE => {
            let bound = of_descriptors(descriptors());
            let most = bound.as_ref().map_or_else(|| "most".into(), |bound| bound.most.to_string());
            let remedy = bound.map_or_else(|| RAISE_DESCRIPTORS.into(), |bound| bound.remedy);
            Some(format!("EMFILE: the launcher has the {most} descriptors that it may have: {remedy}"))
        }
        Errno::NFILE => {
            Some("ENFILE: the machine has as many open files as it may have: raise `fs.file-max`".into())
        }
        Errno::NOMEM => Some(format!("ENOMEM: there is no memory for it: {RAISE_MEMORY}")),
        _ => None,
    }
}

fn of_processes() -> String {
    let is_full = |limit: &ProcessLimit| limit.now.is_some_and(|now| now + 1 >= limit.most);
    match of_groups(&process_groups()).into_iter().find(is_full) {
        Some(ProcessLimit { most, holder, .. }) => {
            format!(
                "EAGAIN: {holder} has the {most} processes and threads that it may have: {RAISE_PROCESSES}"
            )
        }
        None => {
            "EAGAIN: the machine, or the user, has as many processes as it may have: raise `kernel.pid_max`, \
                 `kernel.threads-max` or `ulimit -Hu`"
                .into()
        }
    }
}

/// How many descriptors this process may have, if there is a limit.
pub(crate) fn descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The limit of a process that may have so many descriptors: its own, or the kernel's for every process.
pub(crate) fn of_descriptors(most: Option<u64>) -> Option<Bound> {
    descriptor_bound(most, nr_open())
}

fn descriptor_bound(most: Option<u64>, nr_open: Option<u64>) -> Option<Bound> {
    let (from, remedy) = match (most, nr_open) {
        (Some(most), Some(of_kernel)) if most >= of_kernel => {
            ("fs.nr_open", "raise `fs.nr_open` (sysctl), and `LimitNOFILE=` of the unit")
        }
        (None, Some(_)) => ("fs.nr_open", "raise `fs.nr_open` (sysctl)"),
        _ => ("RLIMIT_NOFILE", RAISE_DESCRIPTORS),
    };
    let most = most.into_iter().chain(nr_open).min()?;
    Some(Bound { most, from: from.into(), whose: "which".into(), remedy: remedy.into() })
}

/// How many descriptors the kernel lets a process have, whoever that belongs to.
pub(crate) fn nr_open() -> Option<u64> {
    kernel_number(NR_OPEN)
}

/// How many files all processes of the machine may have open.
pub(crate) fn of_open_files() -> Option<Bound> {
    let setting = "fs.file-max";
    let (most, remedy) = (kernel_number("/proc/sys/fs/file-max")?, Holder::Kernel(setting).remedy());
    Some(Bound { most, from: setting.into(), whose: "and all processes of the machine".into(), remedy })
}

/// How many descriptors this process has, if the kernel says so without a list of them (6.2).
pub(crate) fn descriptors_now() -> Option<u64> {
    fs::metadata("/proc/self/fd").ok().map(|found| found.len()).filter(|count| *count > 0)
}

/// The control groups around this process that count processes.
pub(crate) fn process_groups() -> Vec<PathBuf> {
    cgroup::own_groups(&["pids.current"])
}

/// The limits of those of these groups that have one.
pub(crate) fn of_groups(groups: &[PathBuf]) -> Vec<ProcessLimit> {
    let number = |group: &PathBuf, file| cgroup::number_in(group, &[file]);
    let limited = |group: &PathBuf| {
        let (most, now) = (number(group, "pids.max")?, number(group, "pids.current")?);
        Some(ProcessLimit { most, now: Some(now), holder: Holder::Group(group.clone()) })
    };
    groups.iter().filter_map(limited).collect()
}

/// The limits of the kernel. `kernel.pid_max` may be that of a container, whose processes nobody counts; what is
/// counted is all of the machine's.
pub(crate) fn of_kernel() -> Vec<ProcessLimit> {
    let now = threads_of_machine();
    let limit = |(setting, path, now)| {
        Some(ProcessLimit { most: kernel_number(path)?, now, holder: Holder::Kernel(setting) })
    };
    let settings = [
        ("kernel.pid_max", "/proc/sys/kernel/pid_max", None),
        ("kernel.threads-max", "/proc/sys/kernel/threads-max", now),
    ];
    settings.into_iter().filter_map(limit).collect()
}

/// The limit of the user who runs this process; root has none. The launcher may have all that it was given.
pub(crate) fn of_user() -> Option<ProcessLimit> {
    let most = getrlimit(Resource::Nproc).maximum.filter(|_| !rustix::process::geteuid().is_root())?;
    Some(ProcessLimit { most, now: None, holder: Holder::User })
}

/// Whether this process may pass the limits that it was given, as root may in most places.
pub(crate) fn passes_limits() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    effective >> CAP_SYS_RESOURCE & 1 == 1
}

/// The limit of each uid to which root gives processes, unless root passes the one that it was given.
pub(crate) fn of_each_uid() -> Option<ProcessLimit> {
    let is_given = rustix::process::geteuid().is_root() && !passes_limits();
    let most = getrlimit(Resource::Nproc).maximum.filter(|_| is_given)?;
    Some(ProcessLimit { most, now: None, holder: Holder::Uid })
}

/// A number of the kernel's.
pub(crate) fn kernel_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// How many threads the machine has.
pub(crate) fn threads_of_machine() -> Option<u64> {
    threads_in(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// The same in the text of that file: the second number of `1/234` (proc(5)).
fn threads_in(loadavg: &str) -> Option<u64> {
    loadavg.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_for_a_limit_says_which_and_others_do_not() {
        let says = |errno: Errno| remedy(&errno.into()).unwrap_or_default();
        assert!(says(Errno::MFILE).contains("LimitNOFILE="));
        assert!(says(Errno::NFILE).contains("fs.file-max"));
        assert!(says(Errno::AGAIN).starts_with("EAGAIN: "));
        assert_eq!(says(Errno::PERM), "");
    }

    #[test]
    fn descriptors_are_bounded_by_the_process_and_by_the_kernel() {
        let of = |most, nr_open| {
            descriptor_bound(most, nr_open)
                .map(|bound| (bound.most, bound.from, bound.remedy.contains("fs.nr_open")))
        };
        assert_eq!(of(Some(1024), Some(4096)), Some((1024, "RLIMIT_NOFILE".into(), false)));
        for most in [Some(4096), Some(5000), None] {
            assert_eq!(of(most, Some(4096)), Some((4096, "fs.nr_open".into(), true)), "{most:?}");
        }
        assert_eq!(of(Some(1024), None), Some((1024, "RLIMIT_NOFILE".into(), false)));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn only_the_call_that_makes_a_process_says_with_eagain_that_there_are_too_many() {
        let lack = |errno: Errno, makes_process| Lack::of(&errno.into(), makes_process);
        assert_eq!(lack(Errno::AGAIN, true), Some(Lack::Processes));
        assert_eq!(lack(Errno::AGAIN, false), None, "a channel is full");
        assert_eq!(
            (lack(Errno::MFILE, false), lack(Errno::NFILE, true)),
            (Some(Lack::Descriptors), Some(Lack::Descriptors))
        );
        assert_eq!((lack(Errno::NOMEM, true), lack(Errno::PERM, true)), (Some(Lack::Memory), None));
    }

    #[test]
    fn the_kernel_says_its_limits_and_how_much_there_is() {
        assert_eq!(threads_in("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(threads_in("nonsense"), None);
        let limits = of_kernel();
        assert_eq!(limits.len(), 2);
        assert!(limits[1].now.is_some_and(|now| 0 < now && now < limits[1].most), "{limits:?}");
        let open: Vec<_> = (0..10).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        assert!(descriptors_now().is_none_or(|now| now > open.len() as u64));
    }
}

//! Control groups: what a process may use of the machine, counted and held by the kernel for it and its children.
//!
//! Runs in: the launcher, as root. Sees: the kernel's own files. Never: changes a group that it did not make, but
//! for the one that it is in itself, and that only where version 2 asks for it.
//!
//! Version 2 is used where it is delegated to the launcher, version 1 where its hierarchies can be written, and
//! otherwise resource limits alone; [`Cgroups::kind`] tells which.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::cgroup_claim::{Claim, claim, hold, remove, remove_stale};

/// The controllers that are of use.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// The kernel's weight of a group for which none is set, in version 1 and in version 2.
const WEIGHTS: (u32, u32) = (1024, 100);
/// The file with the weight of a group, in each version.
const CPU_WEIGHT: (&str, &str) = ("cpu.shares", "cpu.weight");
/// The period over which time of processors is counted, in microseconds.
const PERIOD_US: u64 = 100_000;

/// What a group may use; `None` for no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// Bytes of memory.
    pub memory_max: Option<u64>,
    /// Bytes of memory above which it is slowed down.
    pub memory_high: Option<u64>,
    /// Processes and threads.
    pub processes_max: u64,
    /// Hundredths of one processor's time.
    pub cpu_percent: Option<u32>,
    /// How much it gets of a processor that others want as well.
    pub cpu_weight: Option<CpuWeight>,
}

/// How much of a processor a group gets that others want as well, in sixteenths of what most of them get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuWeight(u32);

impl CpuWeight {
    /// For what computes while nobody who is served waits for it.
    pub const BACKGROUND: Self = Self(1);

    /// So many times what most get.
    pub const fn times(times: u32) -> Self {
        Self(times * 16)
    }

    /// In the kernel's numbers, of which this is what most get.
    fn of(self, one: u32) -> String {
        (self.0 * one / 16).to_string()
    }
}

/// One hierarchy in which groups can be made.
#[derive(Debug)]
struct Hierarchy {
    /// The group of ours in it.
    top: PathBuf,
    /// The controllers of version 1 that it has; all of them in version 2.
    controllers: Vec<&'static str>,
    unified: bool,
    /// That `top` is in use.
    claim: Option<Claim>,
}

/// Where the launcher makes groups.
#[derive(Debug, Default)]
pub struct Cgroups(Vec<Hierarchy>);

/// The group of one process; it is removed with this value.
#[derive(Debug)]
pub struct Group(Vec<PathBuf>);

impl Cgroups {
    /// Finds what can be used, and makes the launcher's groups there. What was left in those of earlier launchers must
    /// be gone.
    pub fn open() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let found: Vec<Hierarchy> =
            hierarchies(&mounts, &own).into_iter().filter_map(Hierarchy::claim).collect();
        // A controller is in one version or in the other.
        let unified = found.iter().any(|hierarchy| hierarchy.unified);
        Self(found.into_iter().filter(|hierarchy| hierarchy.unified == unified).collect())
    }

    /// The groups of a launcher that this one has taken the place of: where they are, the names of their controllers,
    /// and whether they are of version 2.
    pub fn known(hierarchies: Vec<(PathBuf, String, bool)>) -> Self {
        let known = |(top, names, unified): (PathBuf, String, bool)| {
            let has = |name: &&'static str| names.split(' ').any(|known| known == *name);
            let claim = hold(&top);
            Hierarchy { top, controllers: CONTROLLERS.into_iter().filter(has).collect(), unified, claim }
        };
        Self(hierarchies.into_iter().map(known).collect())
    }

    /// The same of this launcher.
    pub fn hierarchies(&self) -> impl Iterator<Item = (&Path, String, bool)> {
        self.0.iter().map(|of| (&*of.top, of.controllers.join(" "), of.unified))
    }

    /// What holds the limits, in words.
    pub fn kind(&self) -> String {
        let controllers: Vec<&str> =
            self.0.iter().flat_map(|hierarchy| hierarchy.controllers.clone()).collect();
        match self.0.first() {
            None => "resource limits alone (no control group can be made)".into(),
            Some(Hierarchy { unified: true, .. }) => {
                format!("control groups v2 ({})", controllers.join(", "))
            }
            Some(_) => format!("control groups v1 ({})", controllers.join(", ")),
        }
    }

    /// The launcher's own groups.
    pub fn tops(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|hierarchy| hierarchy.top.as_path())
    }

    /// The controllers that `share` needs and that are not to be had.
    pub fn missing(&self, share: &Share) -> Vec<&'static str> {
        let has = |name| self.0.iter().any(|hierarchy| hierarchy.controllers.contains(&name));
        let needs = [("memory", share.memory_high.is_some()), ("cpu", share.cpu_percent.is_some())];
        needs.into_iter().filter(|(name, needed)| *needed && !has(name)).map(|(name, _)| name).collect()
    }

    /// Makes the group of what works in the background, if a launcher before has not, and opens the files by which a
    /// process joins it. Nothing but its time of processors is counted.
    pub fn background(&self) -> io::Result<(Group, Vec<OwnedFd>)> {
        let with_cpu = self.0.iter().filter(|hierarchy| hierarchy.controllers.contains(&"cpu"));
        let group = Group(with_cpu.map(|hierarchy| hierarchy.top.join("background")).collect());
        let mut joins = Vec::new();
        for path in &group.0 {
            fs::create_dir(path).or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(()),
                _ => Err(error),
            })?;
            joins.push(join_of(path)?);
        }
        group.set_cpu_weight(CpuWeight::BACKGROUND);
        Ok((group, joins))
    }

    /// Makes a group, and opens the files by which a process joins it.
    pub fn group(&self, name: &str, share: &Share) -> io::Result<(Group, Vec<OwnedFd>)> {
        let mut group = Group(Vec::new());
        let mut joins = Vec::new();
        for hierarchy in &self.0 {
            let path = hierarchy.top.join(name);
            fs::create_dir(&path)?;
            group.0.push(path.clone());
            hierarchy.set(&path, share)?;
            joins.push(join_of(&path)?);
        }
        Ok((group, joins))
    }
}

/// The file by which a process joins a group.
fn join_of(path: &Path) -> io::Result<OwnedFd> {
    Ok(OpenOptions::new().write(true).open(path.join("cgroup.procs"))?.into())
}

impl Group {
    /// A group that there is.
    pub fn known(paths: Vec<PathBuf>) -> Self {
        Self(paths)
    }

    /// Gives it another weight, where it has one.
    pub fn set_cpu_weight(&self, weight: CpuWeight) {
        for path in &self.0 {
            for (file, one) in [(CPU_WEIGHT.0, WEIGHTS.0), (CPU_WEIGHT.1, WEIGHTS.1)] {
                let opened = OpenOptions::new().write(true).open(path.join(file));
                // A group that is gone has nobody in it.
                let _ = opened.and_then(|mut file| file.write_all(weight.of(one).as_bytes()));
            }
        }
    }

    /// Where it is in each hierarchy.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }
}

impl Drop for Group {
    /// Only an empty group can be removed; one that is not yet goes with the launcher's next start.
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_dir(path);
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for hierarchy in &self.0 {
            if hierarchy.unified {
                hierarchy.take_back();
            }
            remove(&hierarchy.top);
        }
    }
}

impl Hierarchy {
    /// Makes the launcher's group in a hierarchy; `None` if that is not allowed.
    fn claim(mut self) -> Option<Self> {
        remove_stale(&self.top, std::process::id());
        if self.unified {
            self.controllers = available(&self.top.join("cgroup.controllers"));
        }
        if self.controllers.is_empty() {
            return None;
        }
        let own = self.top.clone();
        let (top, claim) = claim(&own, std::process::id()).ok()?;
        (self.top, self.claim) = (top, Some(claim));
        if self.unified && self.delegate(&own).is_err() {
            remove(&self.top);
            return None;
        }
        Some(self)
    }

    /// Version 2: a group that passes controllers on has no processes of its own, so the launcher moves down.
    fn delegate(&self, own: &Path) -> io::Result<()> {
        let all: Vec<String> = self.controllers.iter().map(|name| format!("+{name}")).collect();
        let launcher = self.top.join("launcher");
        fs::create_dir(&launcher)?;
        fs::write(launcher.join("cgroup.procs"), "0")?;
        let passed = fs::write(own.join("cgroup.subtree_control"), all.join(" "));
        if passed.is_err() {
            fs::write(own.join("cgroup.procs"), "0")?;
        }
        passed?;
        fs::write(self.top.join("cgroup.subtree_control"), all.join(" "))
    }

    /// Version 2: the launcher moves up again, so that its group can be removed. At the end nobody is told of failures.
    fn take_back(&self) {
        let all: Vec<String> = self.controllers.iter().map(|name| format!("-{name}")).collect();
        let Some(own) = self.top.parent() else { return };
        for group in [self.top.as_path(), own] {
            let _ = fs::write(group.join("cgroup.subtree_control"), all.join(" "));
        }
        let _ = fs::write(own.join("cgroup.procs"), "0");
    }

    fn set(&self, path: &Path, share: &Share) -> io::Result<()> {
        let quota = share.cpu_percent.map(|percent| u64::from(percent) * PERIOD_US / 100);
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let pids = Some(share.processes_max.to_string());
        let weight = |one: u32| share.cpu_weight.map(|weight| weight.of(one));
        let (memory, high) = (number(share.memory_max), number(share.memory_high));
        let settings = if self.unified {
            let cpu = quota.map(|quota| format!("{quota} {PERIOD_US}"));
            // Memory that could be swapped out would not be limited at all.
            let swap = memory.as_ref().map(|_| "0".to_owned());
            vec![
                ("memory", "memory.max", memory),
                ("memory", "memory.high", high),
                ("swap", "memory.swap.max", swap),
                ("pids", "pids.max", pids),
                ("cpu", "cpu.max", cpu),
                ("cpu", CPU_WEIGHT.1, weight(WEIGHTS.1)),
            ]
        } else {
            vec![
                ("memory", "memory.limit_in_bytes", memory),
                ("memory", "memory.soft_limit_in_bytes", high),
                ("pids", "pids.max", pids),
                ("cpu", "cpu.cfs_quota_us", number(quota)),
                ("cpu", CPU_WEIGHT.0, weight(WEIGHTS.0)),
            ]
        };
        for (controller, file, value) in settings {
            match value {
                Some(value) if self.controllers.contains(&controller) => fs::write(path.join(file), value)?,
                // A kernel without swap accounting has no such file.
                Some(value) if controller == "swap" => drop(fs::write(path.join(file), value)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The control group of this process that has one of these files, and those around it, from the inside.
pub(crate) fn own_groups(files: &[&str]) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for hierarchy in hierarchies(&mounts, &own) {
        let groups = hierarchy.top.ancestors();
        let counts = |group: &&Path| files.iter().any(|file| group.join(file).exists());
        found.extend(groups.filter(counts).map(Path::to_owned));
    }
    found
}

/// The number in the first of these files of a group that there is; one without a limit says `max`.
pub(crate) fn number_in(group: &Path, files: &[&str]) -> Option<u64> {
    let text = files.iter().find_map(|file| fs::read_to_string(group.join(file)).ok())?;
    text.trim().parse().ok()
}

/// Every hierarchy that has a controller of use, with the launcher's own group in it.
fn hierarchies(mounts: &str, own: &str) -> Vec<Hierarchy> {
    let own: Vec<(&str, &str)> =
        own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')).collect();
    mounts.lines().filter_map(|line| hierarchy(line, &own)).collect()
}

/// What a line of `mountinfo` says: `ID PARENT DEV ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS` (proc(5)).
fn hierarchy(line: &str, own: &[(&str, &str)]) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut fields = after.split(' ');
    let unified = match fields.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    let options = fields.nth(1)?;
    let controllers: Vec<&str> = CONTROLLERS
        .into_iter()
        .filter(|name| !unified && options.split(',').any(|option| option == *name))
        .collect();
    let mut groups = own.iter();
    let (_, path) = match controllers.first() {
        Some(first) => groups.find(|(names, _)| names.split(',').any(|name| name == *first))?,
        None => groups.find(|(names, _)| unified && names.is_empty())?,
    };
    // In a container the mount may begin at the group itself.
    let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    let top = Path::new(point).join(below.trim_start_matches('/'));
    Some(Hierarchy { top, controllers, unified, claim: None })
}

fn available(file: &Path) -> Vec<&'static str> {
    let text = fs::read_to_string(file).unwrap_or_default();
    CONTROLLERS.into_iter().filter(|name| text.split_whitespace().any(|has| has == *name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
25 22 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
26 25 0:23 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
27 25 0:24 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
28 25 0:25 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices\n";

    #[test]
    fn version_1_has_a_hierarchy_for_each_controller() {
        let found = hierarchies(V1, "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n");
        let tops: Vec<_> =
            found.iter().map(|h| (h.top.to_str().unwrap(), h.controllers.clone(), h.unified)).collect();
        assert_eq!(
            tops,
            [
                ("/sys/fs/cgroup/memory/a/b", vec!["memory"], false),
                ("/sys/fs/cgroup/cpu/", vec!["cpu"], false)
            ]
        );
    }

    #[test]
    fn version_2_has_one() {
        let line = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = hierarchies(line, "0::/system.slice/bulkhead.service\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].top.to_str(), Some("/sys/fs/cgroup/system.slice/bulkhead.service"));
        assert!(found[0].unified);
        // In a container whose mount begins at its own group.
        let line = line.replace(" / /sys", " /system.slice /sys");
        let found = hierarchies(&line, "0::/system.slice/bulkhead.service\n");
        assert_eq!(found[0].top.to_str(), Some("/sys/fs/cgroup/bulkhead.service"));
    }

    #[test]
    fn what_cannot_be_held_is_said() {
        let share = Share { cpu_percent: Some(50), memory_high: Some(1 << 20), ..Share::default() };
        assert_eq!(Cgroups::default().missing(&share), ["memory", "cpu"]);
        assert!(Cgroups::default().kind().contains("alone"));
        assert!(Cgroups::default().missing(&Share { memory_max: Some(1), ..Share::default() }).is_empty());
    }
}

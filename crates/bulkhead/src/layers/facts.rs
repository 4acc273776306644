//! What is read in `/proc` of a process, of its parent and of this one, and what it says of each layer.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: the kernel's texts, and the names of
//! control groups. Never: guesses; what cannot be read is `None`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use wire::Role;

use super::Mark;
use super::limits;

const NAMESPACES: [&str; 6] = ["mnt", "pid", "ipc", "uts", "net", "cgroup"];

/// How the names of the launcher's control groups begin; its pid follows.
const CGROUP: &str = "bulkhead-";

/// Namespaces, by their kinds.
type Spaces = BTreeMap<&'static str, PathBuf>;

/// What the kernel says; `None` where it does not.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) pid: u32,
    /// As the server says.
    pub(super) uid: u32,
    /// As the server says.
    pub(super) role: String,
    pub(super) status: Option<String>,
    pub(super) limits: Option<String>,
    pub(super) cgroup: Option<String>,
    pub(super) stat: Option<String>,
    /// Who owns its files in `/proc`.
    pub(super) owner: Option<u32>,
    /// Device, inode and mode of its root directory.
    pub(super) root: Option<(u64, u64, u32)>,
    pub(super) spaces: Spaces,
    pub(super) fds: Option<usize>,
    /// The process that started it, which is the launcher.
    pub(super) parent_status: Option<String>,
    pub(super) parent_limits: Option<String>,
    pub(super) parent_spaces: Spaces,
    /// Of this command.
    pub(super) our_root: Option<(u64, u64, u32)>,
    pub(super) our_spaces: Spaces,
}

impl Facts {
    pub(super) fn of(pid: u32, uid: u32, role: &str) -> Self {
        let proc = Path::new("/proc").join(pid.to_string());
        let text = |name: &str| fs::read_to_string(proc.join(name)).ok();
        let status = text("status");
        let parent = status.as_deref().and_then(|status| field(status, "PPid")?.parse::<u32>().ok());
        let parent = parent.map(|parent| Path::new("/proc").join(parent.to_string()));
        let of_parent =
            |name: &str| parent.as_ref().and_then(|parent| fs::read_to_string(parent.join(name)).ok());
        Self {
            pid,
            uid,
            role: role.to_owned(),
            limits: text("limits"),
            cgroup: text("cgroup"),
            stat: text("stat"),
            owner: fs::metadata(proc.join("status")).ok().map(|found| found.uid()),
            root: place(&proc.join("root")),
            spaces: spaces(&proc),
            fds: fs::read_dir(proc.join("fd")).ok().map(Iterator::count),
            parent_status: of_parent("status"),
            parent_limits: of_parent("limits"),
            parent_spaces: parent.as_ref().map(|parent| spaces(parent)).unwrap_or_default(),
            our_root: place(Path::new("/")),
            our_spaces: spaces(Path::new("/proc/self")),
            status,
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        field(self.status.as_deref()?, name)
    }

    /// A uid that is not the launcher's, all four times, and one group.
    pub(super) fn identity(&self) -> Option<bool> {
        let uids = self.field("Uid")?.split_whitespace();
        let own = uids.clone().count() == 4 && uids.clone().all(|found| found.parse() == Ok(self.uid));
        let groups = self.field("Groups")?.split_whitespace().count();
        Some(self.uid != 0 && own && groups == 1 && self.parent_uid() != Some(self.uid))
    }

    fn parent_uid(&self) -> Option<u32> {
        field(self.parent_status.as_deref()?, "Uid")?.split_whitespace().next()?.parse().ok()
    }

    pub(super) fn capabilities(&self) -> Option<bool> {
        let mut none = true;
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            none &= self.set_is_empty(set)?;
        }
        Some(none)
    }

    pub(super) fn bounding_set(&self) -> Option<bool> {
        self.set_is_empty("CapBnd")
    }

    fn set_is_empty(&self, name: &str) -> Option<bool> {
        Some(u64::from_str_radix(self.field(name)?, 16).ok()? == 0)
    }

    pub(super) fn no_new_privs(&self) -> Option<bool> {
        Some(self.field("NoNewPrivs")? == "1")
    }

    pub(super) fn umask(&self) -> Option<bool> {
        Some(self.field("Umask")? == "0077")
    }

    /// At least one program: `Seccomp_filters` says how many there are, and older kernels do not have that line.
    pub(super) fn seccomp(&self) -> Option<bool> {
        Some(self.field("Seccomp")? == "2" && self.field("Seccomp_filters") != Some("0"))
    }

    /// A root directory that is not the machine's, in mounts of its own.
    pub(super) fn root(&self) -> Option<bool> {
        let ((device, inode, _), (our_device, our_inode, _)) = (self.root?, self.our_root?);
        Some((device, inode) != (our_device, our_inode) && self.own("mnt")?)
    }

    pub(super) fn open_root(&self) -> Option<bool> {
        self.root.map(|(_, _, mode)| mode & 0o005 == 0o005)
    }

    /// Whether its namespace of this kind is neither the launcher's nor that of this command.
    pub(super) fn own(&self, kind: &str) -> Option<bool> {
        let (own, ours) = (self.spaces.get(kind)?, self.our_spaces.get(kind)?);
        if own == ours {
            return Some(false);
        }
        Some(own != self.parent_spaces.get(kind)?)
    }

    /// Its PID namespace: a broker is in the machine's, as it answers calls of processes that it has to know.
    pub(super) fn pids(&self) -> Mark {
        self.or_host(self.own_pids(), &["broker"])
    }

    /// Its network: those who make connections for others are in the machine's.
    pub(super) fn network(&self) -> Mark {
        let has = |role: &&Role| role.facts().has_network;
        let roles: Vec<&str> = Role::ALL.iter().filter(has).map(|role| role.name()).collect();
        self.or_host(self.own("net"), &roles)
    }

    /// What is missing by intent in these roles.
    fn or_host(&self, own: Option<bool>, roles: &[&str]) -> Mark {
        match own {
            Some(false) if roles.contains(&self.role.as_str()) => Mark::Host,
            own => own.into(),
        }
    }

    /// Whether it is in a PID namespace of its own. Everybody may read that it has one number more than the launcher.
    pub(super) fn own_pids(&self) -> Option<bool> {
        let count = |status| Some(field(status, "NSpid")?.split_whitespace().count());
        let numbers = || Some(count(self.status.as_deref()?)? > count(self.parent_status.as_deref()?)?);
        self.own("pid").or_else(numbers)
    }

    pub(super) fn in_cgroup(&self) -> Option<bool> {
        self.cgroup.as_ref().map(|_| self.cgroup_version().is_some())
    }

    /// The version of the control groups of the launcher's that it is in: lines are `ID:CONTROLLERS:PATH`.
    pub(super) fn cgroup_version(&self) -> Option<&'static str> {
        let mut versions = self.cgroup.as_deref()?.lines().filter_map(|line| {
            let (id, rest) = line.split_once(':')?;
            let (group, _) = rest.split_once(':')?.1.rsplit_once('/')?;
            let top = group.rsplit('/').next()?.strip_prefix(CGROUP)?;
            top.parse::<u32>().ok()?;
            Some(if id == "0" { "v2" } else { "v1" })
        });
        versions.next()
    }

    pub(super) fn limits(&self) -> Option<bool> {
        let own = self.limits.as_deref()?;
        let uid = self.field("Uid")?.split_whitespace().next()?.parse::<u32>().ok()?;
        // The number of processes counts for a uid: where all have the same, it cannot be limited.
        let shared = self.parent_uid()? == uid;
        let few = shared || limits::fewer_processes(own, self.parent_limits.as_deref()?)?;
        Some(few && limits::nothing_of_no_use(own)?)
    }

    /// It leads its session: field 6 of `stat`, of which field 2 may hold any byte.
    pub(super) fn session(&self) -> Option<bool> {
        let (_, after) = self.stat.as_deref()?.rsplit_once(')')?;
        Some(after.split_whitespace().nth(3)?.parse() == Ok(self.pid))
    }

    /// The kernel gives the files of a process that may not be traced to root.
    pub(super) fn undumpable(&self) -> Option<bool> {
        let uid: u32 = self.field("Uid")?.split_whitespace().nth(1)?.parse().ok()?;
        if uid == 0 { None } else { Some(self.owner? == 0) }
    }
}

/// The value of a field `Name:\tvalue`.
pub(super) fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn place(path: &Path) -> Option<(u64, u64, u32)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mode()))
}

fn spaces(proc: &Path) -> Spaces {
    let read = |kind: &&'static str| Some((*kind, fs::read_link(proc.join("ns").join(kind)).ok()?));
    NAMESPACES.iter().filter_map(read).collect()
}

//! The layers of a process's jail, as the kernel reports them in `/proc`, not as the server claims them.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: the kernel's texts. Never: takes a layer
//! for applied that it could not read.

use std::fs;
use std::path::Path;

/// What the kernel says of a process; `None` if it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    /// All four uids are the expected one, which is not root's, and there is exactly one group.
    pub identity: Option<bool>,
    /// No capability in any of the five sets.
    pub caps: Option<bool>,
    /// No program that it starts can gain privileges.
    pub nnp: Option<bool>,
    /// Its root directory is not the system's.
    pub root: Option<bool>,
    /// It writes no core file.
    pub rlimits: Option<bool>,
    /// How many descriptors it has open.
    pub fds: Option<usize>,
}

impl Layers {
    /// Reads the layers of `pid`, which should run as `uid`.
    pub fn of(pid: u32, uid: u32) -> Self {
        let proc = Path::new("/proc").join(pid.to_string());
        let text = |name: &str| fs::read_to_string(proc.join(name)).ok();
        let root = fs::read_link(proc.join("root")).ok();
        let mut layers = Self::parse(text("status").as_deref(), text("limits").as_deref(), uid);
        layers.root = root.map(|root| root != Path::new("/"));
        layers.fds = fs::read_dir(proc.join("fd")).ok().map(Iterator::count);
        layers
    }

    /// Reads what is in `/proc/PID/status` and `/proc/PID/limits`.
    pub fn parse(status: Option<&str>, limits: Option<&str>, uid: u32) -> Self {
        Self {
            identity: status.and_then(|status| identity(status, uid)),
            caps: status.and_then(caps),
            nnp: status.and_then(|status| field(status, "NoNewPrivs")).map(|value| value == "1"),
            root: None,
            rlimits: limits.and_then(core_is_zero),
            fds: None,
        }
    }

    /// Every layer with its name.
    pub fn named(&self) -> [(&'static str, Option<bool>); 5] {
        [
            ("identity", self.identity),
            ("caps", self.caps),
            ("nnp", self.nnp),
            ("root", self.root),
            ("rlimits", self.rlimits),
        ]
    }

    /// The layers in one cell of a table.
    pub fn cell(&self) -> String {
        let fds = self.fds.map_or("?".into(), |fds| fds.to_string());
        if self.named().iter().all(|(_, applied)| applied.is_none()) && self.fds.is_none() {
            return "?".into();
        }
        let mut cell = String::new();
        for (name, applied) in self.named() {
            let before = if applied == Some(false) { "-" } else { "" };
            let after = if applied.is_none() { "?" } else { "" };
            cell += &format!("{before}{name}{after} ");
        }
        cell + "fds:" + &fds
    }
}

/// The value of a field `Name:\tvalue`.
fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn identity(status: &str, uid: u32) -> Option<bool> {
    let uids = field(status, "Uid")?.split_whitespace();
    let own = uids.clone().count() == 4 && uids.clone().all(|found| found.parse() == Ok(uid));
    let groups = field(status, "Groups")?.split_whitespace().count();
    Some(uid != 0 && own && groups == 1)
}

fn caps(status: &str) -> Option<bool> {
    let mut none = true;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        none &= u64::from_str_radix(field(status, set)?, 16).ok()? == 0;
    }
    Some(none)
}

fn core_is_zero(limits: &str) -> Option<bool> {
    let mut lines = limits.lines();
    let values = lines.find_map(|line| line.strip_prefix("Max core file size"))?;
    let mut values = values.split_whitespace();
    Some(values.next()? == "0" && values.next()? == "0")
}

/// The memory of a process in bytes: its proportional share, or what is resident.
pub fn memory(pid: u32) -> Option<u64> {
    let proc = Path::new("/proc").join(pid.to_string());
    let rollup = fs::read_to_string(proc.join("smaps_rollup")).unwrap_or_default();
    pss(&rollup).or_else(|| {
        let statm = fs::read_to_string(proc.join("statm")).ok()?;
        resident(&statm, rustix::param::page_size() as u64)
    })
}

fn pss(rollup: &str) -> Option<u64> {
    let kib = field(rollup, "Pss")?.strip_suffix("kB")?.trim();
    Some(kib.parse::<u64>().ok()? * 1024)
}

fn resident(statm: &str, page: u64) -> Option<u64> {
    let pages = statm.split_whitespace().nth(1)?;
    Some(pages.parse::<u64>().ok()? * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tsite\nUid:\t61001\t61001\t61001\t61001\nGid:\t61001\t61001\t61001\t61001\n\
        Groups:\t61001 \nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t0\n";
    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max stack size            8388608              unlimited            bytes     \n\
        Max core file size        0                    0                    bytes     \n";

    fn parse(status: &str) -> Layers {
        Layers::parse(Some(status), Some(LIMITS), 61001)
    }

    #[test]
    fn a_complete_jail() {
        let layers = Layers { root: Some(true), fds: Some(9), ..parse(STATUS) };
        assert_eq!(layers.cell(), "identity caps nnp root rlimits fds:9");
    }

    #[test]
    fn what_is_missing_is_seen() {
        let other = STATUS.replacen("61001", "0", 1);
        assert_eq!(parse(&other).identity, Some(false));
        let groups = STATUS.replace("Groups:\t61001 ", "Groups:\t61001 4");
        assert_eq!(parse(&groups).identity, Some(false));
        let no_group = STATUS.replace("Groups:\t61001 ", "Groups:\t");
        assert_eq!(parse(&no_group).identity, Some(false));
        let caps = STATUS.replace("CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff");
        assert_eq!(parse(&caps).caps, Some(false));
        assert_eq!(parse(&STATUS.replace("Privs:\t1", "Privs:\t0")).nnp, Some(false));
        let limits = LIMITS.replace("size        0 ", "size        unlimited ");
        assert_eq!(Layers::parse(None, Some(&limits), 1).rlimits, Some(false));
        let root = Layers::parse(Some(&STATUS.replace("61001", "0")), None, 0);
        assert_eq!(root.identity, Some(false));
        assert_eq!(parse(&caps).cell(), "identity -caps nnp root? rlimits fds:?");
    }

    #[test]
    fn what_cannot_be_read_is_not_claimed() {
        assert_eq!(Layers::parse(None, None, 1).cell(), "?");
        assert_eq!(parse("Name:\tx\n").identity, None);
        assert_eq!(parse("CapInh:\t0\n").caps, None);
    }

    #[test]
    fn memory_is_the_share_or_what_is_resident() {
        assert_eq!(pss("Rss: 9 kB\nPss:                1204 kB\nPss_Dirty: 3 kB\n"), Some(1204 * 1024));
        assert_eq!(pss(""), None);
        assert_eq!(resident("1000 25 3 1 0 9 0\n", 4096), Some(102_400));
        assert!(memory(std::process::id()).unwrap() > 0);
    }
}

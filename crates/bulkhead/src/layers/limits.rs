//! Resource limits in the words of `/proc/PID/limits`.
//!
//! Runs in: the `bulkhead` command. Sees: the kernel's text. Never: takes a limit that is not told for one that
//! is set.

/// What no process of the server has a use for, and what its limit is.
const OF_NO_USE: [&str; 5] = [
    "Max core file size",
    "Max locked memory",
    "Max msgqueue size",
    "Max nice priority",
    "Max realtime priority",
];

/// Whether it may have none of what no process has a use for.
pub(super) fn nothing_of_no_use(limits: &str) -> Option<bool> {
    let mut none = true;
    for name in OF_NO_USE {
        none &= limit(limits, name)? == ("0", "0");
    }
    Some(none)
}

/// Whether it may have fewer processes than the launcher.
pub(super) fn fewer_processes(own: &str, launchers: &str) -> Option<bool> {
    let count = |limits| {
        let (_, hard) = limit(limits, "Max processes")?;
        if hard == "unlimited" { Some(u64::MAX) } else { hard.parse::<u64>().ok() }
    };
    Some(count(own)? < count(launchers)?)
}

/// The soft and the hard limit of this name.
fn limit<'t>(limits: &'t str, name: &str) -> Option<(&'t str, &'t str)> {
    let mut values = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
    Some((values.next()?, values.next()?))
}

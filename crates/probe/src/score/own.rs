//! The checks that have several degrees, each with a function of its own.
//!
//! Runs in: the probe. Never: changes what it looks at without putting it back.

use std::fs;
use std::os::unix::net::UnixDatagram;

use rustix::fs::{Access, Mode};
use rustix::process::{getegid, getgroups, getuid, umask};

use super::check::{Check, CheckResult, How, ScoreFacts};

pub(super) const fn check(
    id: &'static str,
    means: &'static str,
    weight: u64,
    range: u64,
    how: &'static str,
    fill: fn(&ScoreFacts) -> CheckResult,
) -> Check {
    Check { id, means, weight, range, how: How::Own(how, fill) }
}

/// 10 for root, 9 for `nobody`, which is nobody's own.
pub(super) fn user(_: &ScoreFacts) -> CheckResult {
    let uid = getuid().as_raw();
    let badness = match uid {
        0 => 10,
        65_534 => 9,
        _ => 0,
    };
    CheckResult::new(badness, format!("uid {uid}"))
}

/// Says nothing for root, for whom groups do not matter.
pub(super) fn groups(_: &ScoreFacts) -> CheckResult {
    if getuid().is_root() {
        return CheckResult { badness: None, words: "root needs no groups".into() };
    }
    match getgroups() {
        Ok(groups) => {
            let more = groups.iter().filter(|group| **group != getegid()).count();
            CheckResult::new(u64::from(more > 0), format!("{more} besides its own"))
        }
        Err(_) => CheckResult::new(1, "the groups are not told"),
    }
}

pub(super) fn temporary(_: &ScoreFacts) -> CheckResult {
    for folder in ["/tmp", "/var/tmp"] {
        let own = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("bulkhead-probe");
        let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
        if entries.any(|entry| !own(&entry.file_name())) {
            return CheckResult::new(1, format!("{folder} has files"));
        }
    }
    CheckResult::new(0, "none in sight")
}

/// 10 if it may write, 5 if it may list, 1 if they are there and empty.
pub(super) fn homes(_: &ScoreFacts) -> CheckResult {
    let mut worst = CheckResult::new(0, "not in sight");
    for folder in ["/home", "/root", "/run/user"] {
        let Ok(listed) = fs::read_dir(folder) else { continue };
        let badness = match (rustix::fs::access(folder, Access::WRITE_OK), listed.count()) {
            (Ok(()), _) => 10,
            (Err(_), 0) => 1,
            (Err(_), _) => 5,
        };
        if worst.badness < Some(badness) {
            let word = ["may be written", "can be listed", "is there"]
                [[10, 5, 1].iter().position(|b| *b == badness).unwrap_or(0)];
            worst = CheckResult::new(badness, format!("{folder} {word}"));
        }
    }
    worst
}

/// 10 for `/usr` and the kernel, 5 for the configuration, 3 for the rest.
pub(super) fn system(_: &ScoreFacts) -> CheckResult {
    let folders = [("/usr", 10), ("/boot", 10), ("/etc", 5), ("/", 3), ("/var", 3), ("/srv", 3), ("/opt", 3)];
    for (folder, badness) in folders {
        if rustix::fs::access(folder, Access::WRITE_OK).is_ok() {
            return CheckResult::new(badness, format!("{folder} may be written"));
        }
    }
    CheckResult::new(0, "none may be written")
}

/// The first class of others that may use its files: 10, 5, 2, 1.
pub(super) fn mask(_: &ScoreFacts) -> CheckResult {
    let now = umask(Mode::from_raw_mode(0o077));
    umask(now);
    let bits = now.as_raw_mode();
    let badness = [(0o002, 10), (0o004, 5), (0o020, 2), (0o040, 1)]
        .into_iter()
        .find_map(|(bit, badness)| (bits & bit == 0).then_some(badness));
    CheckResult::new(badness.unwrap_or(0), format!("{bits:03o}"))
}

/// 3 if it sees others, 1 if it sees that there are some.
pub(super) fn processes(facts: &ScoreFacts) -> CheckResult {
    if facts.any(&["visible-by-proc"]) {
        return CheckResult::new(3, "others are listed");
    }
    let own = std::process::id();
    match fs::metadata("/proc/1") {
        Ok(_) if own != 1 => CheckResult::new(1, "/proc/1 is there"),
        _ => CheckResult::new(0, "none is listed"),
    }
}

pub(super) fn notify(_: &ScoreFacts) -> CheckResult {
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        return CheckResult::new(1, "$NOTIFY_SOCKET is set");
    }
    let reached = UnixDatagram::unbound().and_then(|socket| socket.connect("/run/systemd/notify"));
    CheckResult::new(
        u64::from(reached.is_ok()),
        if reached.is_ok() { "its socket is in reach" } else { "not in reach" },
    )
}

/// 10 if a way leads out, 2 if only to the machine itself.
pub(super) fn addresses(facts: &ScoreFacts) -> CheckResult {
    if facts.any(&["connect-outside"]) {
        return CheckResult::new(10, "a route leads out");
    }
    if facts.any(&["connect-loopback", "udp", "bind-loopback"]) {
        return CheckResult::new(2, "127.0.0.1 can be used");
    }
    CheckResult::new(0, "none")
}

/// 10 if one that matters can be opened, 5 if nodes are in sight.
pub(super) fn devices(facts: &ScoreFacts) -> CheckResult {
    if facts.any(&["dev-disks", "dev-memory", "dev-others", "dev-kmsg"]) {
        return CheckResult::new(10, "devices can be opened");
    }
    if facts.any(&["device-files", "mknod-device"]) {
        return CheckResult::new(5, "device nodes are in sight");
    }
    CheckResult::new(0, "none but the harmless ones")
}

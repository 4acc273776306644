//! C: mounting and the like.
//!
//! Runs in: the probe, in a child that leaves the machine's mounts alone first, if it may; else the calls get
//! arguments that are wrong.

use std::os::fd::AsRawFd;

use rustix::fs::CWD;
use sys::attempt::{Arg, calls};

use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, denied, reached, tried};
use crate::look::Own;

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('C', "mount", "mount a file system", "seccomp", mount),
    attempt('C', "mount-bind", "mount a folder in a second place", "seccomp", mount_bind),
    attempt('C', "remount", "make a read-only mount writable", "seccomp", remount),
    attempt('C', "umount", "take a mount away", "seccomp", umount),
    attempt('C', "pivot-root", "exchange the root", "seccomp", pivot_root),
    attempt('C', "fsopen", "a file system by fsopen", "seccomp", fsopen),
    attempt('C', "fspick", "a file system's settings by fspick", "seccomp", fspick),
    attempt('C', "open-tree", "a copy of a mount by open_tree", "seccomp", open_tree),
    attempt('C', "move-mount", "move a mount", "seccomp", move_mount),
    attempt('C', "mount-setattr", "change a mount's attributes", "seccomp", mount_setattr),
];

const NO_SUCH: &str = "/bulkhead-probe-no-such-folder";
const PRIVATE_ALL: i64 = 0x4_0000 | 0x4000;
const BIND: i64 = 0x1000;
const REMOUNT: i64 = 0x20;
const NEW_MOUNTS: i64 = 0x2_0000;

fn int(value: impl Into<i64>) -> Arg<'static> {
    Arg::Int(value.into())
}

/// In a child: mounts of its own, from which nothing gets out. False if that is not to be had.
fn own_mounts(cx: &Cx<'_>) -> bool {
    cx.aside
        && calls::UNSHARE.make(&mut [int(NEW_MOUNTS)]).is_ok()
        && calls::MOUNT.make(&mut [Arg::Null, Arg::Text("/"), Arg::Null, int(PRIVATE_ALL), Arg::Null]).is_ok()
}

/// A folder that is there and is no mount. The kernel looks for the folder before it asks for the privilege.
fn no_mount() -> String {
    let known = ["/proc/self", "/etc", "/usr", "/dev/pts/..", "/tmp/."];
    known.into_iter().find(|path| std::fs::metadata(path).is_ok()).unwrap_or(".").into()
}

/// Mounts in a child's own mounts, or else with a kind that is none, which tells whether it is allowed.
fn mount_with(cx: &Cx<'_>, source: &str, kind: &str, flags: i64) -> AttemptOutcome {
    let own = if own_mounts(cx) { Own::new().ok() } else { None };
    let target = own.as_ref().map_or_else(no_mount, |own| own.0.display().to_string());
    let (kind, flags) = if own.is_some() { (kind, flags) } else { ("no-such-kind", 0) };
    let options = Arg::Null;
    let result =
        calls::MOUNT.make(&mut [Arg::Text(source), Arg::Text(&target), Arg::Text(kind), int(flags), options]);
    if own.is_none() {
        return reached(result);
    }
    let _ = calls::UMOUNT2.make(&mut [Arg::Text(&target), int(0)]);
    tried(result)
}

fn mount(cx: &Cx<'_>) -> AttemptOutcome {
    mount_with(cx, "none", "tmpfs", 0)
}

fn mount_bind(cx: &Cx<'_>) -> AttemptOutcome {
    mount_with(cx, "/", "", BIND)
}

fn remount(_: &Cx<'_>) -> AttemptOutcome {
    // It is no mount: who is told so was let through.
    reached(calls::MOUNT.make(&mut [
        Arg::Null,
        Arg::Text(&no_mount()),
        Arg::Null,
        int(REMOUNT | BIND),
        Arg::Null,
    ]))
}

fn umount(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::UMOUNT2.make(&mut [Arg::Text(&no_mount()), int(0)]))
}

fn pivot_root(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::PIVOT_ROOT.make(&mut [Arg::Text(NO_SUCH), Arg::Text(NO_SUCH)]))
}

fn fsopen(_: &Cx<'_>) -> AttemptOutcome {
    tried(calls::FSOPEN.make(&mut [Arg::Text("tmpfs"), int(1)]))
}

fn fspick(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::FSPICK.make(&mut [int(CWD.as_raw_fd()), Arg::Text("/"), int(1)]))
}

fn open_tree(_: &Cx<'_>) -> AttemptOutcome {
    // OPEN_TREE_CLONE and _CLOEXEC.
    tried(calls::OPEN_TREE.make(&mut [int(CWD.as_raw_fd()), Arg::Text("/"), int(0x8_0001)]))
}

fn move_mount(_: &Cx<'_>) -> AttemptOutcome {
    let here = || int(CWD.as_raw_fd());
    reached(calls::MOVE_MOUNT.make(&mut [here(), Arg::Text(NO_SUCH), here(), Arg::Text(NO_SUCH), int(0)]))
}

fn mount_setattr(_: &Cx<'_>) -> AttemptOutcome {
    // Neither sets nor clears anything: the kernel returns before it asks for a privilege, so ask for `nosuid` on
    // nothing.
    let mut attributes = [0; 32];
    attributes[..8].copy_from_slice(&2_u64.to_ne_bytes());
    let path = Arg::Text(NO_SUCH);
    let result = calls::MOUNT_SETATTR.make(&mut [
        int(CWD.as_raw_fd()),
        path,
        int(0),
        Arg::Bytes(&attributes),
        Arg::Len(3),
    ]);
    match result {
        Err(sys::attempt::Errno::NOSYS) => denied(sys::attempt::Errno::NOSYS, ""),
        result => reached(result),
    }
}

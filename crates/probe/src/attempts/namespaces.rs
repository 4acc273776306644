//! E: new namespaces, and those of others.
//!
//! Runs in: the probe, in a child, or else on a thread of its own. Never: makes one around the process that is
//! probed.

use std::os::fd::AsRawFd;

use sys::attempt::{Arg, Errno, calls, child};

use super::identity::on_a_thread;
use crate::attempt::{Attempt, AttemptOutcome, Cx, any, attempt, denied, reached, tried};

const MOUNT: i64 = 0x2_0000;
const CGROUP: i64 = 0x200_0000;
const UTS: i64 = 0x400_0000;
const IPC: i64 = 0x800_0000;
const USER: i64 = 0x1000_0000;
const PID: i64 = 0x2000_0000;
const NET: i64 = 0x4000_0000;
const TIME: i64 = 0x80;

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('E', "unshare-mount", "new mounts (unshare)", "seccomp", unshare).number(MOUNT),
    attempt('E', "unshare-cgroup", "a new view of control groups (unshare)", "seccomp", unshare)
        .number(CGROUP),
    attempt('E', "unshare-uts", "a new host name (unshare)", "seccomp", unshare).number(UTS),
    attempt('E', "unshare-ipc", "new objects of IPC (unshare)", "seccomp", unshare).number(IPC),
    attempt('E', "unshare-user", "new users (unshare)", "seccomp", unshare).number(USER),
    attempt('E', "unshare-pid", "new processes (unshare)", "seccomp", unshare).number(PID),
    attempt('E', "unshare-net", "a new network (unshare)", "seccomp", unshare).number(NET),
    attempt('E', "unshare-time", "a new time (unshare)", "seccomp", unshare).number(TIME),
    attempt('E', "clone-mount", "new mounts (clone)", "seccomp", clone).number(MOUNT),
    attempt('E', "clone-cgroup", "a new view of control groups (clone)", "seccomp", clone).number(CGROUP),
    attempt('E', "clone-uts", "a new host name (clone)", "seccomp", clone).number(UTS),
    attempt('E', "clone-ipc", "new objects of IPC (clone)", "seccomp", clone).number(IPC),
    attempt('E', "clone-user", "new users (clone)", "seccomp", clone).number(USER),
    attempt('E', "clone-pid", "new processes (clone)", "seccomp", clone).number(PID),
    attempt('E', "clone-net", "a new network (clone)", "seccomp", clone).number(NET),
    attempt('E', "clone3-mount", "new mounts (clone3)", "seccomp", clone3).number(MOUNT),
    attempt('E', "clone3-cgroup", "a new view of control groups (clone3)", "seccomp", clone3).number(CGROUP),
    attempt('E', "clone3-uts", "a new host name (clone3)", "seccomp", clone3).number(UTS),
    attempt('E', "clone3-ipc", "new objects of IPC (clone3)", "seccomp", clone3).number(IPC),
    attempt('E', "clone3-user", "new users (clone3)", "seccomp", clone3).number(USER),
    attempt('E', "clone3-pid", "new processes (clone3)", "seccomp", clone3).number(PID),
    attempt('E', "clone3-net", "a new network (clone3)", "seccomp", clone3).number(NET),
    attempt('E', "clone3-time", "a new time (clone3)", "seccomp", clone3).number(TIME),
    attempt('E', "setns-proc", "enter a namespace by /proc", "seccomp", setns_proc),
    attempt('E', "setns-pidfd", "enter another process's namespaces by its pidfd", "seccomp", setns_pidfd),
    attempt('E', "proc-ns", "hold another process's namespace", "mount namespace", proc_ns),
];

fn unshare(cx: &Cx<'_>) -> AttemptOutcome {
    let make = || calls::UNSHARE.make(&mut [Arg::Int(cx.number)]);
    if cx.aside {
        return tried(make());
    }
    // A call that is refused to a process of several threads (EINVAL) was let through otherwise.
    on_a_thread(|| reached(make()))
}

fn clone(cx: &Cx<'_>) -> AttemptOutcome {
    tried(child::clone_with(cx.number))
}

fn clone3(cx: &Cx<'_>) -> AttemptOutcome {
    tried(child::clone3_with(cx.number))
}

fn setns_proc(cx: &Cx<'_>) -> AttemptOutcome {
    if cx.aside { enter_by_proc() } else { on_a_thread(enter_by_proc) }
}

fn enter_by_proc() -> AttemptOutcome {
    any(["mnt", "net", "ipc", "uts", "cgroup", "pid"], |name| {
        any(["1", "self"], |pid| match crate::look::open(format!("/proc/{pid}/ns/{name}"), false) {
            Ok(file) => tried(calls::SETNS.make(&mut [Arg::Int(file.as_raw_fd().into()), Arg::Int(0)])),
            Err(error) => tried::<(), _>(Err(error)).or_detail("no such file in /proc"),
        })
    })
}

fn setns_pidfd(cx: &Cx<'_>) -> AttemptOutcome {
    if cx.aside { enter_by_pidfd(cx) } else { on_a_thread(|| enter_by_pidfd(cx)) }
}

fn enter_by_pidfd(cx: &Cx<'_>) -> AttemptOutcome {
    // All but user, pid and time.
    const FLAGS: i64 = MOUNT | NET | IPC | UTS | CGROUP;
    let mut pids = super::processes::targets(cx);
    pids.push(cx.own);
    any(pids, |pid| {
        let pidfd = rustix::process::Pid::from_raw(*pid)
            .ok_or(Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()));
        match pidfd {
            Ok(pidfd) => tried(calls::SETNS.make(&mut [Arg::Int(pidfd.as_raw_fd().into()), Arg::Int(FLAGS)])),
            Err(errno) => denied(errno, "no pidfd"),
        }
    })
}

fn proc_ns(cx: &Cx<'_>) -> AttemptOutcome {
    super::processes::each(cx, |pid| tried(crate::look::open(format!("/proc/{pid}/ns/mnt"), false)))
}

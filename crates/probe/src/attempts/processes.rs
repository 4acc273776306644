//! B: other processes: seen, signalled, read, controlled.
//!
//! Runs in: the probe. Never: sends a signal other than 0, which does nothing.

use std::fs;
use std::io::Write as _;

use sys::attempt::child::fork_many;
use sys::attempt::{Arg, Errno, calls, memory, odd};

use crate::attempt::{
    Attempt, AttemptOutcome, Cx, any, attempt, denied, reached, refused, short, succeeded, tried,
};
use crate::look;

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('B', "visible-by-kill", "find others by trying each number", "pid namespace", visible_by_kill),
    attempt('B', "visible-by-proc", "find others in /proc", "mount namespace", visible_by_proc),
    attempt('B', "kill", "signal another process (kill)", "identity", kill),
    attempt('B', "tgkill", "signal another process (tgkill)", "identity", tgkill),
    attempt('B', "tkill", "signal another process (tkill)", "identity", tkill),
    attempt(
        'B',
        "sigqueue",
        "signal another process, as somebody else (rt_sigqueueinfo)",
        "identity",
        sigqueue,
    ),
    attempt('B', "kill-all", "signal everybody (kill -1)", "identity", kill_all).here(),
    attempt('B', "kill-group", "signal the launcher's process group", "session", kill_group),
    attempt('B', "pidfd-open", "a pidfd of another process", "pid namespace", pidfd_open),
    attempt('B', "pidfd-signal", "signal another process by its pidfd", "identity", pidfd_signal),
    attempt('B', "sigio", "have the kernel signal another process (F_SETOWN)", "seccomp", sigio).either(),
    attempt('B', "ptrace", "trace another process", "identity", ptrace),
    attempt('B', "vm-read", "read another process's memory (process_vm_readv)", "identity", vm_read),
    attempt('B', "vm-write", "write another process's memory (process_vm_writev)", "identity", vm_write),
    attempt('B', "proc-mem", "open /proc/PID/mem of another process", "mount namespace", proc_mem),
    attempt('B', "proc-root", "go through /proc/PID/root of another process", "mount namespace", proc_root),
    attempt('B', "proc-fd", "list /proc/PID/fd of another process", "mount namespace", proc_fd),
    attempt(
        'B',
        "proc-environ",
        "read /proc/PID/environ of another process",
        "mount namespace",
        proc_environ,
    ),
    attempt(
        'B',
        "oom-score",
        "have the kernel kill others before itself when memory runs out (oom_score_adj)",
        "mount namespace",
        oom_score,
    ),
    attempt('B', "kcmp", "compare itself with another process (kcmp)", "seccomp", kcmp),
    attempt('B', "pidfd-getfd", "take a descriptor from another process", "identity", pidfd_getfd),
    attempt('B', "madvise", "push another process's memory out", "seccomp", madvise),
    attempt('B', "move-pages", "move another process's pages", "seccomp", move_pages),
    attempt('B', "fork", "make a process", "seccomp", fork).services_may(),
    attempt('B', "fork-bomb", "make 64 processes at once", "rlimits", fork_bomb).services_may(),
];

/// Whom to go for: what the hints name, or else the first process and the parent. Where neither is anybody else, any
/// numbers, so that the calls are made at least.
pub(crate) fn targets(cx: &Cx<'_>) -> Vec<i32> {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let mut pids = if cx.hints.pids.is_empty() { vec![1, parent] } else { cx.hints.pids.clone() };
    pids.retain(|&pid| pid > 0 && !ours(cx, pid));
    if pids.is_empty() {
        pids = vec![2, 3, 1000, 10_000];
        pids.retain(|&pid| !ours(cx, pid));
    }
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Whether this is the probe or the child that tries.
fn ours(cx: &Cx<'_>, pid: i32) -> bool {
    pid == cx.own || u32::try_from(pid) == Ok(std::process::id())
}

/// Makes the attempt on each target.
pub(crate) fn each(cx: &Cx<'_>, one: impl FnMut(&i32) -> AttemptOutcome) -> AttemptOutcome {
    any(targets(cx), one)
}

fn int(value: impl Into<i64>) -> Arg<'static> {
    Arg::Int(value.into())
}

fn visible_by_kill(cx: &Cx<'_>) -> AttemptOutcome {
    // LIMIT: numbers up to the usual pid_max of a small machine; each costs half a microsecond.
    let exists = |pid: &i32| !matches!(calls::KILL.make(&mut [int(*pid), int(0)]), Err(Errno::SRCH));
    if matches!(calls::KILL.make(&mut [int(cx.own), int(0)]), Err(Errno::PERM)) {
        return denied(Errno::PERM, "the question itself is refused");
    }
    let found: Vec<i32> = (1..=32_768).filter(|&pid| !ours(cx, pid)).filter(exists).collect();
    if found.is_empty() {
        refused("nobody")
    } else {
        succeeded(format!("{}: {}", found.len(), short(&found)))
    }
}

fn visible_by_proc(cx: &Cx<'_>) -> AttemptOutcome {
    let listed = match fs::read_dir("/proc") {
        Ok(listed) => listed,
        Err(error) => return tried::<(), _>(Err(error)),
    };
    let pids = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found: Vec<i32> = pids.filter(|&pid| !ours(cx, pid)).collect();
    if found.is_empty() {
        refused("nobody")
    } else {
        succeeded(format!("{}: {}", found.len(), short(&found)))
    }
}

fn kill(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| tried(calls::KILL.make(&mut [int(pid), int(0)])))
}

fn tgkill(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| tried(calls::TGKILL.make(&mut [int(pid), int(pid), int(0)])))
}

fn tkill(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| tried(calls::TKILL.make(&mut [int(pid), int(0)])))
}

fn sigqueue(cx: &Cx<'_>) -> AttemptOutcome {
    // A siginfo whose code is SI_QUEUE (-1), as only that one may be sent to others.
    let mut siginfo = [0_u8; 128];
    siginfo[8..12].copy_from_slice(&(-1_i32).to_ne_bytes());
    each(cx, |&pid| tried(calls::RT_SIGQUEUEINFO.make(&mut [int(pid), int(0), Arg::Bytes(&siginfo)])))
}

fn kill_all(_: &Cx<'_>) -> AttemptOutcome {
    tried(calls::KILL.make(&mut [int(-1), int(0)]))
}

fn kill_group(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| {
        let group = match calls::GETPGID.make(&mut [int(pid)]) {
            Ok(0) => return denied(Errno::SRCH, "its group is not to be seen"),
            Ok(group) => group,
            Err(errno) => return denied(errno, ""),
        };
        tried(calls::KILL.make(&mut [int(-group), int(0)]))
    })
}

fn open_pidfd(pid: i32) -> Result<std::os::fd::OwnedFd, Errno> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
}

fn pidfd_open(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| tried(open_pidfd(pid)))
}

/// Opens a pidfd and does something with its number.
fn by_pidfd(cx: &Cx<'_>, with: impl Fn(i64) -> AttemptOutcome) -> AttemptOutcome {
    use std::os::fd::AsRawFd;
    each(cx, |&pid| match open_pidfd(pid) {
        Ok(pidfd) => with(pidfd.as_raw_fd().into()),
        Err(errno) => denied(errno, "no pidfd"),
    })
}

fn pidfd_signal(cx: &Cx<'_>) -> AttemptOutcome {
    by_pidfd(cx, |fd| tried(calls::PIDFD_SEND_SIGNAL.make(&mut [int(fd), int(0), Arg::Null, int(0)])))
}

fn pidfd_getfd(cx: &Cx<'_>) -> AttemptOutcome {
    by_pidfd(cx, |fd| {
        let outcome = tried(calls::PIDFD_GETFD.make(&mut [int(fd), int(0), int(0)]));
        // A process may have no descriptor 0; who is told so was let through.
        if outcome.errno.as_deref() == Some("EBADF") { succeeded("") } else { outcome }
    })
}

fn madvise(cx: &Cx<'_>) -> AttemptOutcome {
    by_pidfd(cx, |fd| {
        reached(calls::PROCESS_MADVISE.make(&mut [int(fd), Arg::Null, int(0), int(20), int(0)]))
    })
}

/// The kernel only looks at whom the signal is for once it sends one.
fn sigio(cx: &Cx<'_>) -> AttemptOutcome {
    let Ok((reading, _writing)) = std::io::pipe() else { return refused("no pipe") };
    each(cx, |&pid| tried(odd::set_signal_owner(&reading, pid)))
}

fn ptrace(cx: &Cx<'_>) -> AttemptOutcome {
    const SEIZE: i64 = 0x4206;
    let none = || int(0);
    each(cx, |&pid| tried(calls::PTRACE.make(&mut [int(SEIZE), int(pid), none(), none()])))
}

fn vm_read(cx: &Cx<'_>) -> AttemptOutcome {
    // Nothing is mapped at the address 0: who may read gets EFAULT.
    each(cx, |&pid| reached(memory::of_process(pid, 0, &mut [0; 8])))
}

fn vm_write(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| reached(memory::into_process(pid)))
}

/// Opens a file of each target's folder in `/proc`.
fn in_proc(cx: &Cx<'_>, name: &str) -> AttemptOutcome {
    each(cx, |pid| tried(look::open(format!("/proc/{pid}/{name}"), false)))
}

fn proc_mem(cx: &Cx<'_>) -> AttemptOutcome {
    in_proc(cx, "mem")
}

fn proc_environ(cx: &Cx<'_>) -> AttemptOutcome {
    in_proc(cx, "environ")
}

fn proc_root(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |pid| tried(fs::read_dir(format!("/proc/{pid}/root/"))))
}

fn proc_fd(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |pid| tried(fs::read_dir(format!("/proc/{pid}/fd"))))
}

/// Lowers its own score by one. The kernel lets anybody do so down to the least that a process with CAP_SYS_RESOURCE
/// has set.
fn oom_score(_: &Cx<'_>) -> AttemptOutcome {
    let lower = |path: &str| {
        let score: i32 = fs::read_to_string(path)?.trim().parse().map_err(std::io::Error::other)?;
        look::open(path, true)?.write_all((score - 1).to_string().as_bytes())
    };
    any(["/proc/self/oom_score_adj", "/proc/thread-self/oom_score_adj", "/proc/1/oom_score_adj"], |path| {
        tried(lower(path))
    })
}

fn kcmp(cx: &Cx<'_>) -> AttemptOutcome {
    // KCMP_VM, which needs no descriptor of the other.
    each(cx, |&pid| tried(calls::KCMP.make(&mut [int(cx.own), int(pid), int(1), int(0), int(0)])))
}

fn move_pages(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| {
        let null = || Arg::Null;
        tried(calls::MOVE_PAGES.make(&mut [int(pid), int(0), null(), null(), null(), int(0)]))
    })
}

fn fork(_: &Cx<'_>) -> AttemptOutcome {
    made(1)
}

fn fork_bomb(_: &Cx<'_>) -> AttemptOutcome {
    made(64)
}

fn made(most: usize) -> AttemptOutcome {
    match fork_many(most) {
        (made, Some(errno)) => denied(errno, format!("stopped at {made}")),
        (made, None) => succeeded(format!("{made} were made")),
    }
}

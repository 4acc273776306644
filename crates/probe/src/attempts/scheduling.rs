//! B: limits and scheduling of other processes.
//!
//! Runs in: the probe. Never: sets another value than the one that is there.

use sys::attempt::{Arg, Errno, calls};

use super::processes::each;
use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, denied, tried};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('B', "prlimit", "read another process's limits", "seccomp", prlimit),
    attempt('B', "affinity", "set another process's processors", "identity", affinity),
    attempt('B', "priority", "set another process's priority", "identity", priority),
    attempt(
        'B',
        "io-priority",
        "set another process's priority for input and output",
        "identity",
        io_priority,
    ),
    attempt('B', "realtime", "real-time scheduling of itself", "capabilities", realtime),
    attempt('B', "priority-up", "a higher priority for itself", "capabilities", priority_up),
];

fn int(value: impl Into<i64>) -> Arg<'static> {
    Arg::Int(value.into())
}

fn prlimit(cx: &Cx<'_>) -> AttemptOutcome {
    const NOFILE: i64 = 7;
    each(cx, |&pid| {
        let mut limit = [0; 16];
        tried(calls::PRLIMIT64.make(&mut [int(pid), int(NOFILE), int(0), Arg::Out(&mut limit)]))
    })
}

fn affinity(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| {
        let mut mask = [0; 128];
        let now = calls::SCHED_GETAFFINITY.make(&mut [int(pid), Arg::Len(2), Arg::Out(&mut mask)]);
        // Which processors it may use now is not a secret; that it may be set is the question. If it cannot be
        // read, the own ones do: for who may not set them, nothing changes.
        if now.is_err() {
            return denied(now.err().unwrap_or(Errno::SRCH), "");
        }
        tried(calls::SCHED_SETAFFINITY.make(&mut [int(pid), Arg::Len(2), Arg::Bytes(&mask)]))
    })
}

fn priority(cx: &Cx<'_>) -> AttemptOutcome {
    each(cx, |&pid| match calls::GETPRIORITY.make(&mut [int(0), int(pid)]) {
        Err(errno) => denied(errno, ""),
        // The raw call tells 20 less the priority.
        Ok(now) => tried(calls::SETPRIORITY.make(&mut [int(0), int(pid), int(20 - now)])),
    })
}

fn io_priority(cx: &Cx<'_>) -> AttemptOutcome {
    // Class "none": what every process has that was not given another one.
    each(cx, |&pid| tried(calls::IOPRIO_SET.make(&mut [int(1), int(pid), int(0)])))
}

fn realtime(cx: &Cx<'_>) -> AttemptOutcome {
    const FIFO: i64 = 1;
    let one = 1_i32.to_ne_bytes();
    let none = 0_i32.to_ne_bytes();
    let outcome = tried(calls::SCHED_SETSCHEDULER.make(&mut [int(0), int(FIFO), Arg::Bytes(&one)]));
    if !cx.aside {
        let _ = calls::SCHED_SETSCHEDULER.make(&mut [int(0), int(0), Arg::Bytes(&none)]);
    }
    outcome
}

fn priority_up(cx: &Cx<'_>) -> AttemptOutcome {
    let outcome = tried(calls::SETPRIORITY.make(&mut [int(0), int(0), int(-5)]));
    if !cx.aside && outcome.has_succeeded() {
        let _ = calls::SETPRIORITY.make(&mut [int(0), int(0), int(0)]);
    }
    outcome
}

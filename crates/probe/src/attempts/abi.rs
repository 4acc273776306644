//! E: other gates into the kernel, and memory that is written and executed.
//!
//! Runs in: the probe, in a child, as a filter may end the process.

use sys::attempt::{Errno, memory, odd};

use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, denied, reached, succeeded, tried};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('E', "int80", "system calls of 32-bit programs (int 0x80)", "seccomp", int80).in_child(),
    attempt('E', "x32", "system calls with the x32 bit", "seccomp", x32)
        .refused_anyway("where the kernel has no x32"),
    attempt('E', "high-bits", "ptrace with rubbish in the high half of its number", "seccomp", high_bits),
    attempt('E', "sigsys-handler", "a refused call, by a handler for SIGSYS", "seccomp", sigsys),
    attempt('E', "write-execute", "memory that is writable and executable", "seccomp", write_execute),
    attempt(
        'E',
        "write-then-execute",
        "memory made executable after it was written",
        "seccomp",
        write_then_execute,
    ),
    attempt('E', "memfd-execute", "a file of its own making mapped to be executed", "seccomp", memfd_execute),
];

fn int80(_: &Cx<'_>) -> AttemptOutcome {
    tried(odd::getpid_by_int80())
}

fn x32(_: &Cx<'_>) -> AttemptOutcome {
    tried(odd::getpid_by_x32())
}

fn high_bits(_: &Cx<'_>) -> AttemptOutcome {
    by_ptrace(odd::ptrace_with_high_bits())
}

/// The kernel says ESRCH to who may ask, as no process has the number -1.
fn by_ptrace(result: Result<i64, Errno>) -> AttemptOutcome {
    match result {
        Err(Errno::SRCH) => succeeded("the call comes through"),
        result => reached(result),
    }
}

fn sigsys(_: &Cx<'_>) -> AttemptOutcome {
    match odd::ptrace_with_handler() {
        (false, _) => denied(Errno::PERM, "no handler can be set"),
        (true, result) => by_ptrace(result),
    }
}

fn write_execute(_: &Cx<'_>) -> AttemptOutcome {
    tried(memory::writable_and_executable())
}

fn write_then_execute(_: &Cx<'_>) -> AttemptOutcome {
    tried(memory::executable_later())
}

fn memfd_execute(_: &Cx<'_>) -> AttemptOutcome {
    let mapped = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC)
        .and_then(|file| rustix::fs::ftruncate(&file, 4096).map(|()| file))
        .and_then(|file| memory::file_mapped(&file, true));
    tried(mapped)
}

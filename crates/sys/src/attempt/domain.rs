//! The domain of the sweep: which calls are tried, with which arguments, under which names.
//!
//! Runs in: the probe, which makes the calls; and a test, which asks the policies about the very same ones. Never:
//! makes a call that does harm where it is let through. The question is only whether it gets past the policy: a
//! filter sees the registers before the kernel looks at what they mean, so most lines have the descriptor -1, an
//! address that nobody can use, or a length of nought.

mod calls;
mod descriptors;
mod files;
mod processes;
mod sockets;

pub use descriptors::on;

use super::{Errno, calls::MAKE_DESCRIPTORS, checked};

/// Names of values.
pub type ValueNames = &'static [(u64, &'static str)];

macro_rules! named {
    ($($name:ident)*) => { &[$((libc::$name as u64, stringify!($name))),*] };
}
use named;

/// What a line's value is, and so how it is written.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// One of many; those next to each other are written as a range.
    Number(ValueNames),
    /// A bit, or none.
    Bit(ValueNames),
    /// The number of a system call.
    Call,
    /// One of a list of operations, and what this one is called.
    Word(&'static str),
}

/// One call that is tried.
#[derive(Clone, Debug)]
pub struct CallAttempt {
    /// What is swept, as `sendto flags`; between `<` and `>` is what other topics have that are like it.
    pub topic: String,
    /// The value that is tried.
    pub value: u64,
    /// What the value is.
    pub form: Form,
    call: i64,
    arguments: [u64; 6],
    left_out: bool,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It got past the policy: the kernel did it, or found something wrong with it.
    Reached,
    /// The caller may not.
    Refused,
    /// The kernel has no such call.
    Missing,
    /// It was not tried, as it would end or change the process.
    LeftOut,
}

/// An address of the kernel's, at which it neither reads nor writes for a process.
const NOWHERE: u64 = !0xfff;
/// No descriptor, no process.
const NONE: u64 = u64::MAX;

/// Calls of the domain whose result is a new descriptor, besides those of [`MAKE_DESCRIPTORS`].
const MORE_DESCRIPTORS: &[i64] = &[
    libc::SYS_eventfd,
    libc::SYS_eventfd2,
    libc::SYS_inotify_init,
    libc::SYS_dup,
    libc::SYS_openat,
    libc::SYS_accept4,
];

/// Every line that needs no descriptor.
pub fn lines() -> Vec<CallAttempt> {
    let mut lines = Vec::with_capacity(20_000);
    sockets::sweep(&mut lines);
    files::sweep(&mut lines);
    processes::sweep(&mut lines);
    calls::sweep(&mut lines);
    lines
}

/// No bit, then each.
fn bits() -> impl Iterator<Item = u64> {
    std::iter::once(0).chain((0..32).map(|bit| 1 << bit))
}

/// Adds a topic: `arguments` says what a call with each of the values looks like.
fn topic(
    lines: &mut Vec<CallAttempt>,
    (name, form, call): (impl Into<String>, Form, i64),
    values: impl IntoIterator<Item = u64>,
    arguments: impl Fn(u64) -> [u64; 6],
) {
    let topic = name.into();
    lines.extend(values.into_iter().map(|value| CallAttempt {
        topic: topic.clone(),
        value,
        form,
        call,
        arguments: arguments(value),
        left_out: false,
    }));
}

impl CallAttempt {
    /// The number of the system call, and its arguments as they are in the registers.
    pub fn registers(&self) -> (i64, [u64; 6]) {
        (self.call, self.arguments)
    }

    /// Whether it is only asked about, never tried.
    pub fn is_left_out(&self) -> bool {
        self.left_out
    }

    /// Makes the call; what it makes is closed or unmapped again.
    pub fn make(&self) -> CallOutcome {
        if self.left_out {
            return CallOutcome::LeftOut;
        }
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: lines are made in this module and its children only. None hands the kernel an address but null,
        // one of the kernel's own, or that of a constant which is only read (`descriptors`); what is mapped lies at
        // an address of the kernel's choice, and nothing that is mapped is changed: see there for each topic.
        let result = checked(unsafe { libc::syscall(self.call, a, b, c, d, e, f) });
        if let Ok(made) = result {
            self.undo(made);
        }
        match result {
            Err(Errno::PERM | Errno::ACCESS) => CallOutcome::Refused,
            Err(Errno::NOSYS) => CallOutcome::Missing,
            Ok(_) | Err(_) => CallOutcome::Reached,
        }
    }

    fn undo(&self, made: i64) {
        if MAKE_DESCRIPTORS.contains(&self.call) || MORE_DESCRIPTORS.contains(&self.call) {
            // SAFETY: the call has just made this descriptor, and nobody else knows of it.
            unsafe { libc::close(made as i32) };
        } else if self.call == libc::SYS_mmap {
            // SAFETY: the call has just made this mapping, of this length, and nobody else knows of it.
            unsafe { libc::munmap(made as *mut libc::c_void, self.arguments[1] as usize) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_stands_once() {
        let mut seen = std::collections::HashSet::new();
        for line in lines() {
            assert!(seen.insert((line.topic.clone(), line.value)), "{line:?}");
        }
    }

    /// Whatever is let through does nothing: here most of it is. Families are left out, as the kernel would load
    /// modules for them.
    #[test]
    fn what_is_reached_does_no_harm() {
        let body = || {
            let tried = lines().into_iter().filter(|line| !line.topic.starts_with("socket"));
            let reached = tried.filter(|line| line.make() == CallOutcome::Reached).count();
            reached.to_string().into_bytes()
        };
        let ended = super::super::child::isolated(std::time::Duration::from_secs(30), body).unwrap();
        let reached: usize = String::from_utf8(ended.bytes).unwrap().parse().unwrap();
        assert!(reached > 5000, "{reached}");
    }
}

//! A: limits and capabilities that the process was given.
//!
//! Runs in: the probe. Never: raises a limit except in a child that ends at once.

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::capabilities;
use sys::attempt::{Arg, Errno, calls};

use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, not_applicable, refused, succeeded, tried};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('A', "rlimit-core", "write a core file", "rlimits", core).here(),
    attempt('A', "rlimit-descriptors", "more than 65,536 descriptors", "rlimits", descriptors)
        .here()
        .refused_anyway("where the machine's own limit is lower"),
    attempt('A', "rlimit-processes", "any number of processes and threads", "rlimits", processes).here(),
    attempt('A', "rlimit-memory", "any amount of memory, as far as rlimits go", "rlimits", memory)
        .here()
        .either(),
    attempt('A', "rlimit-raise", "raise its own hard limit", "capabilities", raise)
        .refused_anyway("where root has no CAP_SYS_RESOURCE"),
    attempt('A', "caps-effective", "a capability in the effective set", "capabilities", effective).here(),
    attempt('A', "caps-permitted", "a capability in the permitted set", "capabilities", permitted).here(),
    attempt('A', "caps-inheritable", "a capability in the inheritable set", "capabilities", inheritable)
        .here(),
    attempt('A', "caps-bounding", "a capability in the bounding set", "bounding set", bounding).here(),
    attempt('A', "caps-ambient", "a capability in the ambient set", "capabilities", ambient).here(),
    attempt('A', "securebits", "be given capabilities back by becoming uid 0", "bounding set", securebits)
        .here(),
];

fn core(_: &Cx<'_>) -> AttemptOutcome {
    at_most(Resource::Core, 0)
}

fn descriptors(_: &Cx<'_>) -> AttemptOutcome {
    at_most(Resource::Nofile, 65_536)
}

fn processes(_: &Cx<'_>) -> AttemptOutcome {
    // A machine gives thousands to everybody by default, which is no limit for one service.
    at_most(Resource::Nproc, 4096)
}

fn memory(_: &Cx<'_>) -> AttemptOutcome {
    let data = at_most(Resource::Data, u64::MAX - 1);
    if data.has_succeeded() { at_most(Resource::As, u64::MAX - 1) } else { data }
}

/// A limit, soft and hard. `getrlimit` of a library would take a call that a filter refused for one that succeeded.
fn limit(resource: Resource) -> Result<(u64, u64), Errno> {
    let mut bytes = [0; 16];
    let number = Arg::Int(i64::from(resource as u32));
    calls::PRLIMIT64.make(&mut [Arg::Int(0), number, Arg::Int(0), Arg::Out(&mut bytes)])?;
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(u64::MAX, u64::from_ne_bytes);
    Ok((word(0), word(8)))
}

/// Refused if the hard limit is this or lower.
fn at_most(resource: Resource, most: u64) -> AttemptOutcome {
    match limit(resource) {
        Ok((_, hard)) if hard <= most => refused(format!("limit {hard}")),
        Ok((_, u64::MAX)) => succeeded("no limit"),
        Ok((_, hard)) => succeeded(format!("limit {hard}")),
        Err(errno) => not_applicable(format!("the question is refused ({})", crate::errno::name(errno))),
    }
}

fn raise(cx: &Cx<'_>) -> AttemptOutcome {
    let (soft, hard) = limit(Resource::Nofile).unwrap_or((1024, 1024));
    if hard == u64::MAX {
        return succeeded("there is none to raise");
    }
    let rlimit = |maximum| Rlimit { current: Some(soft), maximum: Some(maximum) };
    let outcome = tried(setrlimit(Resource::Nofile, rlimit(hard + 1)));
    if !cx.aside && outcome.has_succeeded() {
        let _ = setrlimit(Resource::Nofile, rlimit(hard));
    }
    outcome
}

fn effective(_: &Cx<'_>) -> AttemptOutcome {
    one_set(capabilities(None).map(|sets| sets.effective.bits()))
}

fn permitted(_: &Cx<'_>) -> AttemptOutcome {
    one_set(capabilities(None).map(|sets| sets.permitted.bits()))
}

fn inheritable(_: &Cx<'_>) -> AttemptOutcome {
    one_set(capabilities(None).map(|sets| sets.inheritable.bits()))
}

fn one_set(bits: Result<u64, Errno>) -> AttemptOutcome {
    match bits {
        Ok(0) => refused("empty"),
        Ok(bits) => succeeded(format!("{bits:016x}")),
        // No set can be used that cannot even be read; but then `/proc` may tell.
        Err(errno) => tried::<(), _>(Err(errno)),
    }
}

/// The bounding set, bit by bit.
pub(crate) fn bounding_set() -> Result<u64, Errno> {
    let none = || Arg::Int(0);
    collect(|bit| calls::PRCTL_GET.make(&mut [Arg::Int(23), Arg::Int(bit), none(), none(), none()]))
}

/// The ambient set, bit by bit.
pub(crate) fn ambient_set() -> Result<u64, Errno> {
    let none = || Arg::Int(0);
    collect(|bit| calls::PRCTL_AMBIENT.make(&mut [Arg::Int(47), Arg::Int(1), Arg::Int(bit), none(), none()]))
}

/// Asks for one capability after the other; the kernel says EINVAL to those that it does not know.
fn collect(mut ask: impl FnMut(i64) -> Result<i64, Errno>) -> Result<u64, Errno> {
    let mut set = 0;
    for bit in 0..64 {
        match ask(bit) {
            Ok(value) => set |= u64::from(value == 1) << bit,
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(set)
}

fn bounding(_: &Cx<'_>) -> AttemptOutcome {
    one_set(bounding_set())
}

fn ambient(_: &Cx<'_>) -> AttemptOutcome {
    one_set(ambient_set())
}

/// SECBIT_NOROOT and its lock.
fn securebits(_: &Cx<'_>) -> AttemptOutcome {
    const NOROOT_LOCKED: i64 = 0b11;
    let none = || Arg::Int(0);
    match calls::PRCTL_GET.make(&mut [Arg::Int(27), none(), none(), none(), none()]) {
        Err(errno) => tried::<(), _>(Err(errno)),
        Ok(bits) if bits & NOROOT_LOCKED == NOROOT_LOCKED => refused(format!("securebits {bits:#x}")),
        Ok(bits) => succeeded(format!("securebits {bits:#x}")),
    }
}

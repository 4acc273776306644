//! E: terminals: typing into those of others.
//!
//! Runs in: the probe. Never: types into a terminal that is not its own.

use std::os::fd::AsRawFd;

use sys::attempt::{Arg, Errno, calls};

use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, denied, succeeded, tried};
use crate::look;

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('E', "ptmx", "a terminal of its own", "mount namespace", ptmx),
    attempt('E', "tiocsti", "type into a terminal (TIOCSTI)", "seccomp", tiocsti)
        .refused_anyway("where dev.tty.legacy_tiocsti is 0"),
    attempt('E', "tioclinux", "paste into a console (TIOCLINUX)", "seccomp", tioclinux)
        .refused_anyway("where there is no such console"),
    attempt('E', "tiocsetd", "change how a terminal works (TIOCSETD)", "seccomp", tiocsetd),
];

const TIOCSTI: i64 = 0x5412;
const TIOCLINUX: i64 = 0x541C;
const TIOCSETD: i64 = 0x5423;

/// A terminal of its own, or else whatever standard input is.
fn terminal() -> Option<std::os::fd::OwnedFd> {
    look::open("/dev/ptmx", true).ok().map(Into::into).or_else(|| sys::attempt::odd::duplicate(0))
}

fn ptmx(_: &Cx<'_>) -> AttemptOutcome {
    tried(look::open("/dev/ptmx", true))
}

/// Makes a call on the terminal; where there is none, the kernel says ENOTTY to who may ask.
fn ask(request: i64, argument: &[u8]) -> AttemptOutcome {
    let Some(terminal) = terminal() else { return denied(Errno::BADF, "nothing to try it on") };
    let number = Arg::Int(terminal.as_raw_fd().into());
    match calls::IOCTL.make(&mut [number, Arg::Int(request), Arg::Bytes(argument)]) {
        Err(Errno::NOTTY) => denied(Errno::NOTTY, "it has no terminal"),
        result => tried(result),
    }
}

fn tiocsti(_: &Cx<'_>) -> AttemptOutcome {
    ask(TIOCSTI, b" ")
}

fn tioclinux(_: &Cx<'_>) -> AttemptOutcome {
    // Subcode 6: only asks for the state of the keys.
    ask(TIOCLINUX, &[6])
}

fn tiocsetd(_: &Cx<'_>) -> AttemptOutcome {
    // N_TTY, which a terminal has anyway.
    let outcome = ask(TIOCSETD, &0_i32.to_ne_bytes());
    if outcome.has_succeeded() { succeeded("on its own terminal") } else { outcome }
}

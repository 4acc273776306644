//! The program of another launcher, run once to see whether it could take the place of this one.
//!
//! Runs in: the launcher, as root. Sees: what a program prints that the administrator has installed, and how it ends.
//! Never: waits longer than [`REHEARSAL_MAX`] while it serves.
//!
//! The program is given the same record and the same descriptors as later in earnest, in a child, and does all that can
//! fail.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sys::process::{Child, Exit, Pids, Program};
use wire::{OOM_STEP_HELPER, OOM_STEP_MAX};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::error::{Error, during};

/// LIMIT: how long a rehearsal may take; it takes some milliseconds, and a second with thousands of sites.
const REHEARSAL_MAX: Duration = Duration::from_secs(20);
/// LIMIT: bytes of what the program prints that are kept: the mistakes of a configuration, a line each.
const PRINTED_MAX: u64 = 16 << 10;

/// The rehearsal that is under way.
#[derive(Debug, Default)]
pub(crate) struct Rehearsal {
    running: Option<Running>,
    /// What has come of one, until the launcher takes notice: the version of the program, or why it does not fit.
    result: Option<Result<String, String>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    serial: u64,
    printed: OwnedFd,
    deadline: Instant,
    is_late: bool,
}

impl Rehearsal {
    /// Starts one: `program`, with these descriptors.
    pub(crate) fn begin(child: Child, serial: u64, printed: OwnedFd) -> Self {
        let running =
            Running { child, serial, printed, deadline: Instant::now() + REHEARSAL_MAX, is_late: false };
        Self { running: Some(running), result: None }
    }

    /// What has come of it, once.
    pub(crate) fn take_result(&mut self) -> Option<Result<String, String>> {
        self.result.take()
    }
}

/// Starts `program` with these descriptors and a pipe for what it prints; it ends with this process.
pub(crate) fn start(program: &Program, left: &[BorrowedFd<'_>]) -> Result<(Child, OwnedFd), Error> {
    let (reading, writing) = std::io::pipe().map_err(during("make a pipe"))?;
    let parent = rustix::process::getpid();
    let prepare = || {
        let last = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        last.map_err(|error| ("parent death", error.into()))?;
        // One that has died before that would not be missed.
        if rustix::process::getppid() != Some(parent) {
            return Err(("parent death", std::io::ErrorKind::NotFound.into()));
        }
        // It may have as much memory as the launcher, in whose place it would be killed.
        let _ = sys::oom::step_up(OOM_STEP_HELPER, OOM_STEP_MAX);
        for number in [1, 2] {
            sys::process::place(&writing, number).map_err(|error| ("output", error))?;
        }
        sys::passed::leave(left, true).map_err(|error| ("descriptors", error))
    };
    let child = sys::process::start(program, Pids::Shared, prepare).map_err(Error::Start)?;
    Ok((child, reading.into()))
}

impl Component for Rehearsal {
    fn deadline(&self) -> Option<Instant> {
        self.running.as_ref().map(|running| running.deadline)
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let Some(running) = self.running.as_mut() else { return };
        if running.deadline <= now || supervisor.is_stopping() {
            running.child.kill();
            // Its exit is what is waited for now.
            running.is_late = true;
            running.deadline = now + REHEARSAL_MAX;
        }
    }

    fn on_helper_exit(&mut self, _: &mut Supervisor, serial: u64) -> bool {
        let Some(running) = self.running.take_if(|running| running.serial == serial) else { return false };
        match running.child.try_wait() {
            Ok(None) => self.running = Some(running),
            exit => self.result = Some(judge(&running, exit.ok().flatten())),
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    fn is_quiet(&self) -> bool {
        true
    }
}

/// The version of a program that would take the place of this one, or why it would not.
fn judge(running: &Running, exit: Option<Exit>) -> Result<String, String> {
    let printed = printed(&running.printed);
    match exit {
        Some(Exit::Clean) if !printed.is_empty() => Ok(printed),
        _ if running.is_late => Err(format!("it did not end within {} s", REHEARSAL_MAX.as_secs())),
        Some(exit) if printed.is_empty() => Err(format!("it ended with {exit} and said nothing")),
        Some(Exit::Status(_)) => Err(printed),
        Some(exit) => Err(format!("it ended with {exit}: {printed}")),
        None => Err("nobody knows how it ended".into()),
    }
}

/// What a program that has ended had printed: what is in the pipe, without waiting for who may have it as well.
fn printed(pipe: &OwnedFd) -> String {
    let mut bytes = Vec::new();
    let copy = pipe.try_clone().map(File::from);
    if rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK).is_ok()
        && let Ok(file) = copy
    {
        let _ = file.take(PRINTED_MAX).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    // As each line of the launcher's own begins.
    let text = text.trim().trim_start_matches("bulkhead: ");
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

//! What a process says on its way to its program: nothing when it executes that, or what has failed.
//!
//! Runs in: the launcher, as root. Sees: what a child writes before it executes its program, which is ours. Never:
//! waits, unless it is asked to before all is said.

use std::os::fd::OwnedFd;
use std::time::Instant;

use sys::notify::Listener;
use sys::process::StartReport;

use crate::error::Error;

/// What a process has yet to say that is on its way to its program.
#[derive(Debug)]
pub struct Beginning {
    pub(super) report: StartReport,
    /// Where it hands over the listener of its calls.
    pub(super) calls: Option<OwnedFd>,
}

impl Beginning {
    /// Whether it executes its program, or never will.
    pub fn is_over(&self) -> bool {
        self.report.is_over()
    }

    /// The same, after a wait for it until a time.
    pub fn is_over_by(&self, until: Instant) -> bool {
        self.report.is_over_by(until)
    }

    /// What becomes readable when that is so.
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// Where calls of the process arrive that a broker answers.
    ///
    /// # Errors
    /// What kept it from executing its program.
    pub fn end(self) -> Result<Option<Listener>, Error> {
        self.report.read().map_err(Error::Start)?;
        Ok(listener(self.calls))
    }
}

/// What a process has handed over; nothing if it was started without a filter.
pub(super) fn listener(calls: Option<OwnedFd>) -> Option<Listener> {
    calls.and_then(|calls| Listener::take_over(calls).ok().flatten())
}

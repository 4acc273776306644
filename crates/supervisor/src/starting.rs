//! Processes on their way to their programs: nobody waits while a child makes its jail, which takes as long as others leave it a
//! processor.
//!
//! Runs in: the launcher, as root. Sees: what a child says before it executes its program, which is ours. Never: waits for one,
//! but where degraded isolation may have to start it once more, or two are given one program.

use std::time::{Duration, Instant};

use wire::Role;

use crate::Supervisor;
use crate::error::Error;
use crate::spawn::beginning::Beginning;

/// LIMIT: processes on their way to their programs; others start when one of them has arrived.
const BEGUN_MAX: usize = 16;
/// How long a start is put off whose program another process has to execute first.
const SHORTLY: Duration = Duration::from_millis(10);

impl Supervisor {
    /// Starts a process for a slot; the launcher configures the process when that executes its program.
    pub fn spawn(&mut self, slot: usize) -> Result<u64, Error> {
        if self.context.degrades {
            // It is started once more if it fails in a layer that can be left out.
            let started = self.context.start(&self.specs[slot])?;
            return self.register(slot, started, None);
        }
        self.wait_for_program(slot);
        let (started, beginning) = self.context.begin(&self.specs[slot])?.split();
        self.context.reap_program(&self.specs[slot], &started.jailed.child)?;
        self.register(slot, started, Some(beginning))
    }

    /// Whether another process can be begun now.
    pub fn may_begin(&self) -> bool {
        self.begun.len() < BEGUN_MAX
    }

    /// Whether none is on its way.
    pub(crate) fn have_all_begun(&self) -> bool {
        self.begun.is_empty()
    }

    /// Puts a start off for a moment whose program is given to another process that does not execute it yet; whether that is so.
    pub fn is_put_off(&mut self, slot: usize, now: Instant) -> bool {
        let is_put_off = self.in_the_way(slot).is_some();
        if is_put_off {
            self.starts.insert(slot, now + SHORTLY);
        }
        is_put_off
    }

    /// The process on its way that has to execute its program before that is given to the process of a slot, or to a filter of its
    /// chain.
    fn in_the_way(&self, slot: usize) -> Option<u64> {
        let filters = if self.specs[slot].role == Role::Filter { self.filters() } else { vec![slot] };
        let shares = |other: usize| filters.iter().any(|&slot| self.share_program(slot, other));
        let mut begun = self.begun.iter().copied();
        begun.find(|serial| self.processes.get(serial).is_some_and(|process| shares(process.slot)))
    }

    /// Waits until nobody has yet to execute a program that may be given to another.
    pub(crate) fn wait_for_program(&mut self, slot: usize) {
        while let Some(serial) = self.in_the_way(slot) {
            self.end_beginning(serial);
        }
    }

    /// Notes what has come of the way of a process to its program, for which it may have to wait.
    fn end_beginning(&mut self, serial: u64) {
        self.begun.remove(&serial);
        let Some(process) = self.processes.get_mut(&serial) else { return };
        match process.beginning.take().map(Beginning::end) {
            Some(Ok(calls)) => process.calls = calls,
            Some(Err(error)) => process.start_error = Some(error),
            None => {}
        }
    }

    /// The next process that waits for its set-up, which others see from here on, or what has kept it from executing its program.
    pub fn next_unconfigured(&mut self) -> Option<(u64, Result<(), Error>)> {
        let is_there = |serial: &u64| {
            let beginning = self.processes.get(serial).and_then(|process| process.beginning.as_ref());
            beginning.is_none_or(Beginning::is_over)
        };
        let at = self.unconfigured.iter().position(is_there)?;
        let serial = self.unconfigured.remove(at)?;
        self.end_beginning(serial);
        let Some(process) = self.processes.get_mut(&serial) else { return Some((serial, Ok(()))) };
        if let Some(error) = process.start_error.take() {
            return Some((serial, Err(error)));
        }
        process.is_configured = true;
        Some((serial, Ok(())))
    }
}

//! Processes on their way to their programs: nobody waits while a child makes its jail, which takes as long as others leave it a
//! processor.
//!
//! Runs in: the launcher, as root. Sees: what a child says before it executes its program, which is ours. Never: waits for one,
//! but where degraded isolation may have to start it once more.

use crate::Supervisor;
use crate::error::Error;
use crate::spawn::beginning::Beginning;

/// LIMIT: processes on their way to their programs; others start when one of them has arrived.
const BEGUN_MAX: usize = 16;

impl Supervisor {
    /// Starts a process for a slot; the launcher configures the process when that executes its program.
    pub fn spawn(&mut self, slot: usize) -> Result<u64, Error> {
        if self.context.degrades {
            // It is started once more if it fails in a layer that can be left out.
            let started = self.context.start(&self.specs[slot])?;
            return self.register(slot, started, None);
        }
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

    /// Has a slot wait, if another has the program that its process would be given: the other has yet to execute the program, or it
    /// is examined for the other. Whether the slot waits.
    ///
    /// A program is given to one uid at a time: given to another too soon, it can no longer be executed by a child on its way.
    pub fn waits_for_program(&mut self, slot: usize) -> bool {
        let of = |serial: &u64| self.processes.get(serial).map(|process| process.slot);
        let begun = self.begun.iter().filter_map(of);
        let path = self.context.program_of(&self.specs[slot]);
        let examined = || self.examinations.examined().filter(|(other, _)| *other != slot);
        let waits = examined().any(|(_, examined)| path.as_deref() == Some(examined))
            || begun.chain(examined().map(|(other, _)| other)).any(|other| self.share_program(slot, other));
        if waits {
            self.examinations.wait(slot);
        }
        waits
    }

    /// A process executes its program, or never will: another may be given that.
    pub(crate) fn has_begun(&mut self, serial: u64) {
        if self.begun.remove(&serial) {
            self.examinations.make_room();
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
        self.has_begun(serial);
        let Some(process) = self.processes.get_mut(&serial) else { return Some((serial, Ok(()))) };
        if let Some(beginning) = process.beginning.take() {
            match beginning.end() {
                Ok(calls) => process.calls = calls,
                Err(error) => return Some((serial, Err(error))),
            }
        }
        process.is_configured = true;
        Some((serial, Ok(())))
    }
}

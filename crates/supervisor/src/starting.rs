//! Processes on their way to their programs: nobody waits while a child makes its jail, which takes as long as others
//! leave it a processor.
//!
//! Runs in: the launcher, as root. Sees: what a child says before it executes its program, which is ours. Never: waits
//! for one longer than a step of the loop may take, or, when nothing is served yet, than a start of the server.

use std::time::{Duration, Instant};

use crate::Supervisor;
use crate::error::Error;
use crate::spawn::BegunProcess;
use crate::spawn::beginning::Beginning;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// LIMIT: processes on their way to their programs; others start when one of them has arrived.
const BEGUN_MAX: usize = 16;

/// LIMIT: how long the loop waits for a process that degraded isolation may have to begin once more, without a layer of
/// its jail. One that fails later has failed: the next start leaves the layer out.
const DEGRADED_WAIT: Duration = Duration::from_millis(20);

/// Begins a process anew, in the place of one that is to be without a layer.
pub(crate) type Begin<'a> = &'a dyn Fn(&SpawnContext, &ProcessSpec) -> Result<BegunProcess, Error>;

impl Supervisor {
    /// Starts a process for a slot; the launcher configures the process when that executes its program.
    pub fn spawn(&mut self, slot: usize) -> Result<u64, Error> {
        let begin = |context: &SpawnContext, spec: &ProcessSpec| context.begin(spec);
        self.spawn_by(slot, &begin)
    }

    /// The same of a process that is begun in a way of its own.
    pub(crate) fn spawn_by(&mut self, slot: usize, begin: Begin<'_>) -> Result<u64, Error> {
        let begun = begin(&self.context, &self.specs[slot])?;
        let wait = if self.context.degrades { DEGRADED_WAIT } else { Duration::ZERO };
        self.go_on_with(slot, begun, begin, Instant::now() + wait)
    }

    /// Looks after a process that was begun: as one that executes its program, if that is so by a time, or as one on
    /// its way. What fails by then in a layer that can be left out is begun once more.
    pub(crate) fn go_on_with(
        &mut self,
        slot: usize,
        mut begun: BegunProcess,
        begin: Begin<'_>,
        until: Instant,
    ) -> Result<u64, Error> {
        let spec = &self.specs[slot];
        while begun.is_over_by(until) {
            match self.context.finish(spec, begun)? {
                Some(started) => return self.register(slot, started, None),
                None => begun = begin(&self.context, spec)?,
            }
        }
        let (started, beginning) = begun.split();
        self.context.reap_program(spec, &started.jailed.child)?;
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

    /// Has a slot wait, if another has the program that its process would be given: the other has yet to execute the
    /// program, or it is examined for the other. Whether the slot waits.
    ///
    /// A program is given to one uid at a time: given to another too soon, it can no longer be executed by a child on
    /// its way.
    pub fn waits_for_program(&mut self, slot: usize) -> bool {
        let of = |serial: &u64| self.processes.get(serial).map(|process| process.slot);
        // Filters of a chain that grows follow one another.
        let growing: Vec<usize> = self.growing_slots().collect();
        let begun = self.begun.iter().filter_map(of).chain(growing);
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

    /// The next process that waits for its set-up, which others see from here on, or what has kept it from executing
    /// its program.
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
                Err(error) => {
                    if let Error::Start(failure) = &error {
                        // The next start is without the layer, where that may be.
                        self.context.leaves_out(failure);
                    }
                    return Some((serial, Err(error)));
                }
            }
        }
        process.is_configured = true;
        Some((serial, Ok(())))
    }

    /// Waits until a time for the next process of a chain that grows; whether there is something to go on with. Only
    /// before anything is served.
    pub fn awaits_chain(&self, until: Instant) -> bool {
        let last = self.filters.growing.as_ref().and_then(|growing| growing.last());
        let process = last.and_then(|serial| self.processes.get(&serial));
        process
            .and_then(|process| process.beginning.as_ref())
            .is_some_and(|beginning| beginning.is_over_by(until))
    }
}

//! The chain of filters: every request goes from a gate through each of them, and from the last one to a gate.
//!
//! Runs in: the launcher, as root. Sees: exits of filters, and what gates say of the chain: its number. Never: says
//! anything to a filter, or hears it: a filter is any program, which has bundles to read and to write, and works as
//! soon as it runs.
//!
//! A filter that has lost a neighbour is of no use to anybody: when one ends, all do, and come back together, with new
//! channels between them. What was in the old ones is lost; the gates close these connections. The same goes for a last
//! filter that sends nonsense, and for one that reads nothing.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006 (the chain of filter processes).

use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use sys::process::Exit;
use wire::Role;

use crate::Supervisor;
use crate::chain_ends::{Chain, ChainEnds, GrowingChain, StagedChain};
use crate::chain_start::{self, ChainStart};
use crate::error::{Error, during};
use crate::life::Life;
use crate::process::Stage;
use crate::spawn::context::{SpawnContext, duplicate};
use crate::spawn::process_spec::ProcessSpec;
use crate::unread::{LOOKS, UNREAD_MIN, Unread};
use crate::whereabouts::Activity;

impl Supervisor {
    /// The slots of the filters that requests go through, in the order of the chain.
    pub fn filters(&self) -> Vec<usize> {
        self.filters_with(&[Life::Serving, Life::Leaving])
    }

    /// The same of those that are there for so long.
    pub fn filters_with(&self, lives: &[Life]) -> Vec<usize> {
        let fits =
            |slot: &usize| self.specs[*slot].role == Role::Filter && lives.contains(&self.slots[*slot].life);
        (0..self.specs.len()).filter(fits).collect()
    }

    /// Starts all filters, since `slot` has none; unless another one has to be waited for.
    pub fn start_filters(&mut self, slot: usize) {
        self.starts.remove(&slot);
        if self.filters.growing.is_some()
            || self.filters().iter().any(|other| self.starts.contains_key(other))
        {
            return;
        }
        let now = Instant::now();
        let filters = self.filters();
        if !self.filters_examined_first(&filters, now).is_empty() {
            self.start_when_examined(slot, now);
            return;
        }
        filters.iter().for_each(|&filter| self.use_up(filter));
        self.filters.chains += 1;
        self.filters.growing = Some(GrowingChain::of(self.filters.chains, filters));
        self.grow_chain();
    }

    /// Begins the next filter of the chain that grows, or has the gates use it once all of it is there.
    fn grow_chain(&mut self) {
        let Some(mut growing) = self.filters.growing.take() else { return };
        match self.grow(&mut growing) {
            Ok(None) => {
                self.filters.chain = growing.chain;
                self.send_chain_to_gates();
            }
            Ok(Some((slot, serial))) => {
                self.slots[slot].current = Some(serial);
                self.filters.growing = Some(growing);
            }
            Err((slot, error)) => {
                self.break_chain();
                self.not_started(slot, &error);
            }
        }
    }

    /// A filter executes its program.
    pub fn on_filter_there(&mut self, serial: u64) {
        let is_of = |growing: &GrowingChain| growing.last() == Some(serial);
        if self.filters.growing.as_ref().is_some_and(is_of) {
            self.grow_chain();
        } else if self.filters.staged.as_ref().is_some_and(|staged| is_of(&staged.growing)) {
            self.go_on_with_staged_chain();
        }
    }

    /// The slots of filters that are yet to be begun.
    pub(crate) fn growing_slots(&self) -> impl Iterator<Item = usize> {
        let staged = self.filters.staged.as_ref().map(|staged| &staged.growing);
        self.filters.growing.iter().chain(staged).flat_map(|growing| growing.left.iter().copied())
    }

    /// Has the staged chain take the place of the one that there is, which ends when it has passed on what it has.
    pub fn use_staged_chain(&mut self) {
        self.adopt_staged_chain();
        self.send_chain_to_gates();
        self.log.info("filters relaunched");
    }

    fn send_chain_to_gates(&mut self) {
        for gate in self.hearing(Role::Gate) {
            if let Err(error) = self.send_chain(gate) {
                self.log.warning(format!("a gate is not told of the filters: {error}"));
                // It would send requests into the old chain for ever; its successor is told.
                self.give_up(gate);
            }
        }
    }

    /// Begins the next filter of a chain; `None` if all are there.
    pub(crate) fn grow(
        &mut self,
        growing: &mut GrowingChain,
    ) -> Result<Option<(usize, u64)>, (usize, Error)> {
        let Some(slot) = growing.left.pop_front() else { return Ok(None) };
        let begun = self.begin_filter(slot, growing.number, growing.chain.take());
        let (serial, chain) = begun.map_err(|error| (slot, error))?;
        growing.chain = Some(chain);
        growing.members.push((slot, serial));
        self.set_deadline(serial, Some(Instant::now() + self.first_start_max()));
        Ok(Some((slot, serial)))
    }

    /// Begins the filter of `slot` behind those of `before`.
    fn begin_filter(
        &mut self,
        slot: usize,
        number: u32,
        before: Option<Chain>,
    ) -> Result<(u64, Chain), Error> {
        let (first, bundles, mut unread) = match before {
            Some(Chain { first, last, unread, .. }) => (first, last.into_inner(), unread),
            None => {
                let (first, bundles) =
                    sys::seqpacket::pair_that_takes(false, true).map_err(during("make a channel"))?;
                (first.into(), bundles, Vec::new())
            }
        };
        let (onward, last) =
            sys::seqpacket::pair_that_takes(false, true).map_err(during("make a channel"))?;
        for end in [&bundles, &onward] {
            // Whoever writes a filter expects reads and writes that wait.
            rustix::fs::fcntl_setfl(end, OFlags::empty()).map_err(during("set up a channel"))?;
        }
        unread.push(Unread::new(duplicate(&bundles)?));
        let channels = [bundles, onward];
        let begin = |context: &SpawnContext, spec: &ProcessSpec| context.begin_filter(spec, &channels);
        let serial = self.spawn_by(slot, &begin)?;
        let since = Instant::now();
        let (last, look_at) = (last.into(), since + self.unread_max() / LOOKS);
        let start = Some(ChainStart::new(since));
        Ok((serial, Chain { number, first, last, unread, since, look_at, start }))
    }

    /// How long a filter may leave a message unread: as long as a request may wait for a worker.
    fn unread_max(&self) -> Duration {
        Duration::from_millis(self.context.config.limits.start_timeout_ms.into()).max(UNREAD_MIN)
    }

    /// When the launcher looks next whether the filters read.
    pub fn chain_deadline(&self) -> Option<Instant> {
        let start =
            self.filters.chain.as_ref().and_then(|chain| chain.start.as_ref()).map(|start| start.look_at);
        let chain = self.filters.chain.as_ref().map(|chain| chain.look_at);
        chain
            .into_iter()
            .chain(start)
            .chain(self.filters.staged.as_ref().and_then(StagedChain::look_at))
            .min()
    }

    /// Ends a chain in which a filter reads nothing. What waits for the filter has left the gates, who can do nothing
    /// for these clients any more.
    pub fn chain_on_time(&mut self, now: Instant) {
        self.look_at_staged_chain(now);
        self.look_at_starting_chain(now);
        if self.filters.chain.as_ref().is_none_or(|chain| chain.look_at > now) {
            return;
        }
        let timeout = self.unread_max();
        let first_start_max = self.first_start_max();
        let pids = self.filters().into_iter().map(|slot| {
            let process = self.slots[slot].current.and_then(|serial| self.processes.get(&serial));
            process.map_or(0, |process| process.child.pid)
        });
        let pids: Vec<u32> = pids.collect();
        let Some(chain) = &mut self.filters.chain else { return };
        chain.look_at = now + timeout / LOOKS;
        // A filter that has just been started may have to read its data first, but does not sleep meanwhile.
        let is_young = now - chain.since < first_start_max;
        let hangs = |(unread, pid): (&mut Unread, u32)| {
            let activity = Activity::of(pid);
            let is_asleep = unread.is_asleep(activity, now);
            unread.since(now).is_some_and(|since| now - since > timeout) && (is_asleep || !is_young)
        };
        // Those before one that hangs hang as well, as they cannot send.
        let hung = chain.unread.iter_mut().zip(pids).map(hangs).collect::<Vec<_>>();
        if let Some(filter) = hung.into_iter().rposition(|hangs| hangs) {
            self.replace_chain(self.filters()[filter], "did not read what waits for it");
        }
    }

    /// Looks whether the filters that gates use have come up.
    pub(crate) fn look_at_starting_chain(&mut self, now: Instant) {
        let is_due = |start: &ChainStart| start.look_at <= now;
        if !self.filters.chain.as_ref().is_some_and(|chain| chain.start.as_ref().is_some_and(is_due)) {
            return;
        }
        let slots = self.filters();
        let serials: Vec<Option<u64>> = slots.iter().map(|&slot| self.slots[slot].current).collect();
        let rest: Vec<bool> =
            serials.iter().map(|serial| serial.is_some_and(|one| self.rests(one))).collect();
        let Some(chain) = &mut self.filters.chain else { return };
        let read = chain.unread.iter_mut().map(|unread| {
            let waits = unread.since(now).is_some();
            (waits, unread.has_been_read())
        });
        // One that waits for something else than what waits for it does not rest.
        let seen = rest.iter().zip(read).map(|(rests, (waits, has_read))| (*rests && !waits, has_read));
        let seen: Vec<(bool, bool)> = seen.collect();
        let Some(start) = chain.start.as_mut() else { return };
        if !start.is_over(&seen, now) {
            let (up, since): (Vec<bool>, _) = (start.are_up().collect(), chain.since);
            return self.set_start_deadlines(serials.into_iter().zip(up), since);
        }
        chain.start = None;
        serials.into_iter().flatten().for_each(|serial| self.set_serving(serial));
        self.announce();
    }

    /// Gives a deadline to each filter of a chain that has not come up, and takes it from those that have: they wait
    /// for the others.
    fn set_start_deadlines(&mut self, filters: impl Iterator<Item = (Option<u64>, bool)>, since: Instant) {
        let until = since + self.first_start_max();
        for (serial, is_up) in filters.filter_map(|(serial, is_up)| Some((serial?, is_up))) {
            let starting = self.processes.get(&serial).filter(|process| process.stage == Stage::Starting);
            match starting.map(|process| process.deadline.is_some()) {
                Some(true) if is_up => self.set_deadline(serial, None),
                Some(false) if !is_up => self.set_deadline(serial, Some(until)),
                _ => {}
            }
        }
    }

    /// Whether a filter executes its program, and waits for something.
    pub(crate) fn rests(&self, serial: u64) -> bool {
        self.processes
            .get(&serial)
            .is_some_and(|process| process.is_configured && chain_start::rests(process.child.pid))
    }

    /// A filter says nothing: somebody else decides that it works.
    pub(crate) fn set_serving(&mut self, serial: u64) {
        let starting = self.processes.get_mut(&serial).filter(|process| process.stage == Stage::Starting);
        if let Some(process) = starting {
            process.stage = Stage::Serving;
            let slot = process.slot;
            (self.slots[slot].failed_starts, self.slots[slot].unready_since) = (0, None);
            self.set_deadline(serial, None);
        }
    }

    /// A gate has cut off the last filter of a chain. A gate that makes this up costs what a filter's crash costs.
    pub fn on_chain_cut(&mut self, gate: u64, number: u32) {
        if self.specs[self.processes[&gate].slot].role != Role::Gate
            || number == 0
            || number > self.filters.chains
        {
            return self.protocol_violation(gate);
        }
        // All gates share the chain, so that several of them may say so, and one of them late.
        if self.filters.chain.as_ref().is_some_and(|chain| chain.number == number)
            && let Some(&last) = self.filters().last()
        {
            self.replace_chain(last, "sent nonsense to the gates");
        }
    }

    /// Ends all filters for what that of `slot` did; they come back as after its crash.
    fn replace_chain(&mut self, slot: usize, did: &str) {
        let Some(process) = self.slots[slot].current.and_then(|serial| self.processes.get(&serial)) else {
            return;
        };
        let (pid, lived) = (process.child.pid, process.since.elapsed());
        let title = self.specs[slot].title();
        let line = format!("{title} (pid {pid}) {did}: all filters are ended and started again");
        self.break_chain();
        self.decide_restart(
            slot,
            Exit::Signal(rustix::process::Signal::KILL.as_raw()),
            lived,
            did.to_owned(),
            line,
        );
    }

    /// Ends all filters, of which one has ended; the one that is started again will bring them back.
    pub fn break_chain(&mut self) {
        // Whoever closes the ends may take their time; no gate is to send into them meanwhile.
        let growing = self.filters.growing.take().and_then(|growing| growing.chain);
        self.filters.chain.take().into_iter().chain(growing).for_each(|chain| chain.shut());
        for slot in self.filters() {
            if let Some(serial) = self.slots[slot].current.take() {
                self.give_up(serial);
            }
        }
    }

    /// The gates' ends of the chain, if the configuration has filters.
    ///
    /// SECURITY: while there is no chain, its ends are those of channels that nobody has any more: a gate that was told
    /// of none would let requests pass that no filter has seen.
    pub fn chain_ends(&self) -> Result<Option<ChainEnds>, Error> {
        let deserted = || sys::seqpacket::pair().map(|(end, _)| end).map_err(during("make a channel"));
        match &self.filters.chain {
            Some(Chain { number, first, last, .. }) => {
                Ok(Some(ChainEnds { number: *number, first: duplicate(first)?, last: duplicate(last)? }))
            }
            None if self.filters().is_empty() => Ok(None),
            None => Ok(Some(ChainEnds { number: 0, first: deserted()?, last: deserted()? })),
        }
    }

    /// Gives a gate the ends of the chain.
    fn send_chain(&mut self, gate: u64) -> Result<(), Error> {
        for (message, descriptor) in self.chain_ends()?.into_iter().flat_map(ChainEnds::messages) {
            self.send(gate, &message, descriptor);
        }
        Ok(())
    }

    /// Lets go of the chain at the end: it ends when the gates have.
    pub fn leave_chain(&mut self) {
        self.filters.chain = None;
        self.filters.growing = None;
        self.filters.staged = None;
    }
}

//! The chain of filters: every request goes from a gate through each of them, and from the last one to a gate.
//!
//! Runs in: the launcher, as root. Sees: exits of filters. Never: says anything to a filter, or hears it: a filter is any
//! program, which has bundles to read and to write, and works as soon as it runs.
//!
//! A filter that has lost a neighbour is of no use to anybody: when one ends, all do, and come back together, with new
//! channels between them. What was in the old ones is lost; the gates close these connections.
//!
//! Source: seed 001 (the chain of filter processes).

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use wire::{LauncherToGate, Outcome, Role};

use crate::error::{Error, during};
use crate::launch::duplicate;
use crate::launcher::Launcher;
use crate::process::Stage;

/// The gates' ends of a chain, which they share.
#[derive(Debug)]
pub(crate) struct Chain {
    first: OwnedFd,
    last: OwnedFd,
}

impl Launcher {
    /// The posts of the filters, in the order of the chain.
    fn filters(&self) -> Vec<usize> {
        let filters = self.posts.iter().enumerate().filter(|(_, post)| post.role == Role::Filter);
        filters.map(|(post, _)| post).collect()
    }

    /// Starts all filters, since `post` has none; unless another one has to be waited for.
    pub(crate) fn fill_chain(&mut self, post: usize) {
        self.duties[post].start_at = None;
        if self.filters().iter().any(|&other| self.duties[other].start_at.is_some()) {
            return;
        }
        match self.start_chain() {
            Ok(started) => {
                for (post, serial) in started {
                    self.duties[post].current = Some(serial);
                }
                self.announce();
            }
            Err((post, error)) => self.not_started(post, &error),
        }
    }

    /// Starts a process of every filter, and gives the gates the ends of the new chain; or starts none.
    fn start_chain(&mut self) -> Result<Vec<(usize, u64)>, (usize, Error)> {
        let mut started = Vec::new();
        let mut ends: Option<Chain> = None;
        for post in self.filters() {
            match self.start_filter(post, ends.take()) {
                Ok((serial, chain)) => {
                    started.push((post, serial));
                    ends = Some(chain);
                }
                Err(error) => {
                    started.into_iter().for_each(|(_, serial)| self.give_up(serial));
                    return Err((post, error));
                }
            }
        }
        self.chain = ends;
        for gate in self.active(Role::Gate, None) {
            if let Err(error) = self.tell_chain(gate) {
                self.journal.warning(format!("a gate is not told of the filters: {error}"));
                // It would send requests into the old chain for ever; its successor is told.
                self.give_up(gate);
            }
        }
        Ok(started)
    }

    /// Starts the filter of `post` behind those of `before`.
    fn start_filter(&mut self, post: usize, before: Option<Chain>) -> Result<(u64, Chain), Error> {
        let (first, bundles) = match before {
            Some(before) => (before.first, before.last),
            None => sys::seqpacket::pair().map_err(during("make a channel"))?,
        };
        let (onward, last) = sys::seqpacket::pair().map_err(during("make a channel"))?;
        for end in [&bundles, &onward] {
            // Whoever writes a filter expects reads and writes that wait.
            rustix::fs::fcntl_setfl(end, OFlags::empty())
                .map_err(|error| during("set up a channel")(error.into()))?;
        }
        let started = self.ground.start_filter(&self.posts[post], bundles, onward)?;
        let serial = self.enlist(post, started)?;
        if let Some(process) = self.processes.get_mut(&serial) {
            process.stage = Stage::Serving;
        }
        Ok((serial, Chain { first, last }))
    }

    /// Ends all filters, of which one has ended; the one that is started again will bring them back.
    pub(crate) fn break_chain(&mut self) {
        self.chain = None;
        for post in self.filters() {
            if let Some(serial) = self.duties[post].current.take() {
                self.give_up(serial);
            }
        }
    }

    /// Puts a new chain in the place of the present one, which ends when it has passed on what it has.
    pub(crate) fn relaunch_chain(&mut self, ticket: u32) {
        let started = match self.start_chain() {
            Ok(started) => started,
            Err((_, error)) => return self.answer(ticket, Outcome::Failed, &error.to_string()),
        };
        for (post, serial) in started {
            let duty = &mut self.duties[post];
            duty.history.forgive();
            duty.start_at = None;
            if let Some(old) = duty.current.replace(serial) {
                self.retire(old);
            }
        }
        self.journal.info("filters relaunched");
        self.answer(ticket, Outcome::Done, "");
    }

    /// The gates' ends of the chain, if the configuration has filters.
    ///
    /// SECURITY: while there is no chain, its ends are those of channels that nobody has any more: a gate that was told
    /// of none would let requests pass that no filter has seen.
    pub(crate) fn chain_ends(&self) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
        let deserted = || sys::seqpacket::pair().map(|(end, _)| end).map_err(during("make a channel"));
        match &self.chain {
            Some(chain) => Ok(Some((duplicate(&chain.first)?, duplicate(&chain.last)?))),
            None if self.ground.chain.is_empty() => Ok(None),
            None => Ok(Some((deserted()?, deserted()?))),
        }
    }

    /// Gives a gate the ends of the chain.
    fn tell_chain(&mut self, gate: u64) -> Result<(), Error> {
        if let Some((first, last)) = self.chain_ends()? {
            self.tell(gate, &LauncherToGate::ChainFirst {}, Some(first));
            self.tell(gate, &LauncherToGate::ChainLast {}, Some(last));
        }
        Ok(())
    }

    /// Lets go of the chain at the end: it ends when the gates have.
    pub(crate) fn leave_chain(&mut self) {
        self.chain = None;
    }
}

//! Slots that come and go while the others are filled.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: moves a slot, or
//! gives the number of one to another that anybody knows it by.
//!
//! A change has two halves. Its processes are started beside those that they stand for, which know nothing of them;
//! when all have come up, they take their places, or else they go and nothing has changed.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use config::Config;
use wire::{Message, Role};

use crate::backoff::Rule;
use crate::error::Error;
use crate::life::{Life, Removed};
use crate::numbers::{NumberSet, is_live, leave_place};
use crate::process::{Process, Stage};
use crate::site_order::SiteOrder;
use crate::spawn::context::{chain, duplicate};
use crate::spawn::process_spec::ProcessSpec;
use crate::{Slot, Supervisor};

/// A configuration, and what goes with it.
#[derive(Debug)]
pub struct Running {
    /// The configuration, each site at its number.
    pub config: Config,
    /// The listening sockets, by listener, then by gate.
    pub listeners: Vec<Vec<OwnedFd>>,
    /// The sites in the order of the file: clients that name no host get the first one.
    pub order: SiteOrder,
}

/// The slots that a change has met, now that it has ended.
#[derive(Debug, Default)]
pub struct Changed {
    /// Those that serve from here on.
    pub added: Vec<usize>,
    /// Those that are there no more.
    pub removed: Vec<usize>,
}

/// The listening sockets of a gate, once more, of those by listener, then by gate.
pub fn sockets_of(listeners: &[Vec<OwnedFd>], gate: usize) -> Result<Vec<OwnedFd>, Error> {
    listeners.iter().map(|of| duplicate(&of[gate])).collect()
}

impl Supervisor {
    /// Adds slots, which others know nothing of until the change is committed; returns them, in the order of `specs`.
    pub fn add_slots(&mut self, specs: Vec<ProcessSpec>) -> Vec<usize> {
        let free: Vec<usize> = self.slots_of_life(Life::Free).take(specs.len()).collect();
        let numbers: Vec<usize> = free.into_iter().chain(self.specs.len()..).take(specs.len()).collect();
        for (&number, spec) in numbers.iter().zip(specs) {
            let slot = Slot { life: Life::Pending, ..Slot::default() };
            if number < self.specs.len() {
                (self.slots[number], self.specs[number]) = (slot, spec);
            } else {
                self.slots.push(slot);
                self.specs.push(spec);
            }
        }
        self.lookup.take();
        numbers
    }

    /// The configuration that runs, with the sites that serve in the order of the file.
    pub fn running_config(&self) -> Config {
        let numbered = &self.context.config.sites;
        let sites = match self.order.numbers.is_empty() {
            true => numbered.iter().filter(|site| is_live(site)).cloned().collect(),
            false => self.order.sites.clone(),
        };
        self.context.config.with_sites(sites)
    }

    /// The numbers of the sites that serve, in the order of the file.
    pub fn site_order(&self) -> Vec<u16> {
        if !self.order.numbers.is_empty() {
            return self.order.numbers.clone();
        }
        let numbered = (0..).zip(&self.context.config.sites);
        numbered.filter(|(_, site)| is_live(site)).map(|(number, _)| number).collect()
    }

    /// Has the slots of these sites go with the change.
    pub fn leave_sites(&mut self, sites: &[u16]) {
        let sites: NumberSet = sites.iter().copied().collect();
        if sites.is_empty() {
            return;
        }
        for (spec, slot) in self.specs.iter().zip(&mut self.slots) {
            if slot.life == Life::Serving && sites.contains(spec.site) {
                slot.life = Life::Leaving;
            }
        }
    }

    /// Ends the change: what was pending serves, or is removed; what was leaving is removed, or serves.
    pub fn end_change(&mut self, committed: bool) -> Changed {
        let (mut changed, now) = (Changed::default(), Removed { last: self.serial, at: Instant::now() });
        // Nothing is written to the others: the kernel would copy their memory, or look whether copies have it still.
        for (number, slot) in self.slots.iter_mut().enumerate() {
            match (slot.life, committed) {
                (Life::Pending, true) => {
                    changed.added.push(number);
                    slot.life = Life::Serving;
                }
                (Life::Leaving, false) => slot.life = Life::Serving,
                (Life::Pending, false) | (Life::Leaving, true) => {
                    changed.removed.push(number);
                    (slot.life, slot.removed) = (Life::Removed, Some(now));
                }
                _ => {}
            }
        }
        changed
    }

    /// Retires the processes of slots that were removed: those of a site in the order in which they need each other.
    /// What an old worker finishes may be an upload that it has yet to begin to pass on, to a service or by a
    /// connector.
    pub fn empty_slots(&mut self, removed: &[usize]) {
        self.departing.extend(removed);
        self.retire_departing();
    }

    /// Retires the processes of removed slots that nobody needs any more.
    pub(crate) fn retire_departing(&mut self) {
        let departing = std::mem::take(&mut self.departing);
        let (needed, free): (Vec<_>, Vec<_>) = departing.into_iter().partition(|&slot| self.is_needed(slot));
        self.departing = needed;
        free.into_iter().for_each(|slot| self.empty_slot(slot));
    }

    /// Takes notice that one process has a channel on which it relays to another.
    pub(crate) fn note_relay(&mut self, front: u64, other: u64) {
        let slot = self.processes[&other].slot;
        self.processes.get_mut(&front).into_iter().for_each(|front| front.relays_to.push(slot));
    }

    /// Whether a process may still relay to the worker of a slot that is to go: one that does not say yet that it has
    /// another table, or that goes itself.
    pub(crate) fn is_relayed_to(&self, slot: usize) -> bool {
        let goes = |process: &Process| {
            process.stage == Stage::Retiring || self.slots[process.slot].life == Life::Removed
        };
        let relays = |process: &Process| process.relays_to.contains(&slot);
        self.processes.values().any(|one| relays(one) && (one.owes_commits > 0 || goes(one)))
    }

    /// Whether a process lives that may need the one of this slot.
    fn is_needed(&self, slot: usize) -> bool {
        if self.is_relayed_to(slot) {
            return true;
        }
        let spec = &self.specs[slot];
        let takes = |spec| self.context.service(spec).is_some_and(|(_, service)| service.takes_connections);
        let users: &[Role] = match spec.role {
            // It has clients' connections of its own, which are to go on with its successor.
            Role::Service if takes(spec) => &[],
            role => role.facts().users,
        };
        let uses = |process: &Process| {
            let other = &self.specs[process.slot];
            other.site == spec.site && users.contains(&other.role)
        };
        self.processes.values().any(uses)
    }

    /// Retires the processes of a slot that was removed.
    pub fn empty_slot(&mut self, slot: usize) {
        self.starts.remove(&slot);
        self.room.forget(slot);
        self.examinations.forget(slot);
        self.openings.forget(slot);
        self.broken.remove(&slot);
        let state = &mut self.slots[slot];
        (state.broken, state.memory) = (None, None);
        let processes = [state.current.take(), state.next.take()];
        processes.into_iter().flatten().for_each(|serial| self.retire(serial));
    }

    /// A process is sent an update. One that serves is to say in time that it holds; whether there is such a one.
    pub fn expect_commit(&mut self, serial: u64, ticket: Option<u32>) -> bool {
        let timeout = Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
        let Some(process) = self.processes.get_mut(&serial) else { return false };
        process.owes_commits += 1;
        let serves = process.stage == Stage::Serving && ticket.is_some();
        if serves {
            process.ticket = ticket;
            self.set_deadline(serial, Some(Instant::now() + timeout));
        }
        serves
    }

    /// A process says that an update holds; returns the command that waits for that.
    pub fn on_committed(&mut self, serial: u64) -> Option<u32> {
        let process = self.processes.get_mut(&serial)?;
        if process.owes_commits == 0 {
            self.protocol_violation(serial);
            return None;
        }
        process.owes_commits -= 1;
        let is_done = process.owes_commits == 0 && process.stage == Stage::Serving;
        let ticket = process.ticket.filter(|_| is_done);
        if is_done {
            self.set_deadline(serial, None);
        }
        self.retire_departing();
        ticket
    }

    /// A process that serves is sent `confirm`, and is to say in time that it works as it was told; whether there is
    /// such a one.
    pub fn expect_confirmation(&mut self, serial: u64, ticket: u32, confirm: &impl Message) -> bool {
        let timeout = Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
        let serving = self.processes.get_mut(&serial).filter(|process| process.stage == Stage::Serving);
        let Some(process) = serving else { return false };
        process.ticket = Some(ticket);
        self.set_deadline(serial, Some(Instant::now() + timeout));
        self.send(serial, confirm, None);
        true
    }

    /// A process has said so; whether this transaction has waited for it.
    pub fn on_confirmed(&mut self, logger: u64, ticket: u32) -> bool {
        let waits = self.processes.get(&logger).is_some_and(|process| process.ticket == Some(ticket));
        if waits {
            self.set_deadline(logger, None);
        }
        waits
    }

    /// A transaction has ended: no process is part of it any more.
    pub fn end_ticket(&mut self, ticket: u32) {
        let part = self.processes.values_mut().filter(|process| process.ticket == Some(ticket));
        part.for_each(|process| process.ticket = None);
    }

    /// Has the slots of a role go with the change.
    pub fn leave_role(&mut self, role: Role) {
        for (spec, slot) in self.specs.iter().zip(&mut self.slots) {
            if spec.role == role && slot.life == Life::Serving {
                slot.life = Life::Leaving;
            }
        }
    }

    /// Makes the filters of the configuration known as those of this generation, and forgets those of others that no
    /// slot has any more.
    pub fn set_filters(&mut self, generation: u32) {
        self.forget_filters(Life::is_over);
        self.context.chains.insert(generation, chain(&self.context.config));
    }

    /// Forgets the filters of generations of which there are only slots whose life is `over`.
    pub(crate) fn forget_filters(&mut self, over: impl Fn(Life) -> bool) {
        let slots = self.specs.iter().zip(&self.slots).filter(|(_, slot)| !over(slot.life));
        let used: BTreeSet<u32> = slots.map(|(spec, _)| spec.generation).collect();
        self.context.chains.retain(|generation, _| used.contains(generation));
    }

    /// A generation that no filter has had.
    pub fn next_generation(&self) -> u32 {
        self.specs.iter().map(|spec| spec.generation).max().unwrap_or_default() + 1
    }

    /// Whether a process is to take the place of another.
    pub fn is_successor(&self, serial: u64) -> bool {
        let is_next = |process: &Process| self.slots[process.slot].next == Some(serial);
        self.processes.get(&serial).is_some_and(is_next)
    }

    /// The process that serves in the slot of another, or of itself.
    pub fn current_of(&self, serial: u64) -> Option<u64> {
        self.slots[self.processes.get(&serial)?.slot].current
    }

    /// Takes over another configuration; what was there comes back.
    pub fn replace_config(&mut self, new: Running) -> Running {
        self.rule = Rule::of(&new.config.restart);
        self.lookup.take();
        self.hosts.update(&self.context.config.sites, &new.config.sites);
        Running {
            config: std::mem::replace(&mut self.context.config, new.config),
            listeners: std::mem::replace(&mut self.listeners, new.listeners),
            order: std::mem::replace(&mut self.order, new.order),
        }
    }

    /// Makes places of sites that have gone.
    pub fn leave_places(&mut self, gone: &[u16]) {
        for &number in gone {
            // A list of all that there was before would count each of thousands up and down.
            if let Some(site) = self.context.config.sites.get_mut(usize::from(number)) {
                let before = site.clone();
                leave_place(site);
                self.hosts.replace(number, &before, site);
            }
        }
        self.lookup.take();
    }
}

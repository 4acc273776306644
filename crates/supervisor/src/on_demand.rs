//! Sites and services that have a process only while somebody wants something of them.
//!
//! Runs in: the launcher, as root. Sees: numbers of partitions, which gates and sites say. Never: starts one for a
//! process that does not relay to the partition; starts so many at once that nothing else gets its turn.
//!
//! A gate, or a site that relays, says that a connection waits for a partition without a worker (`Wanted`); the
//! connection waits there until the worker is attached. A worker says that nobody has come for a while (`Idle`), and
//! retires when it is its turn (`pace`) as if it had a successor: the channels of gates end before the next one can be
//! wanted, so that none of both messages is lost. What a partition needs beside its worker, connectors and brokers,
//! comes and goes with it.
//!
//! Source: Mihara, "Hi-sap" (2009), the content access scheduler.

use std::collections::HashMap;
use std::time::Instant;

use wire::Role;

use crate::Supervisor;
use crate::life::Life;
use crate::process::Stage;
use crate::setup::links;

/// LIMIT: processes that are begun to be started in one turn of the loop; others are heard between two turns.
const STARTS_PER_TURN: usize = 8;

impl Supervisor {
    /// Whether the process of a slot starts only when it is wanted.
    pub fn is_on_demand(&self, slot: usize) -> bool {
        let spec = &self.specs[slot];
        let site = self.context.config.sites.get(usize::from(spec.site));
        spec.role.is_of_a_site() && site.is_some_and(|site| site.is_on_demand(&self.context.config.server))
    }

    /// Whether nothing is there of a site that could still have something to say: no process, and nothing that one has
    /// left.
    pub fn is_at_rest(&self, site: u16) -> bool {
        let is_of_site = |slot: &usize| self.specs[*slot].site == site;
        self.index.of_site(site).next().is_none()
            && !self.unread_logs.iter().any(|(slot, ..)| is_of_site(slot))
            && !self.wanted.iter().any(is_of_site)
    }

    /// Leaves slots without a process until they are wanted; as many as take the place of processes are wanted at once.
    pub fn let_rest(&mut self, slots: impl IntoIterator<Item = usize>) {
        // A new program that does not start must not take the place of one that has, nor fewer processes that of many.
        let mut leaving: HashMap<(Role, &str), u16> = HashMap::new();
        for (spec, state) in self.specs.iter().zip(&self.slots) {
            if state.life == Life::Leaving && state.current.is_some() {
                *leaving.entry((spec.role, &*spec.name)).or_default() += 1;
            }
        }
        let rest = slots.into_iter().map(|slot| {
            let spec = &self.specs[slot];
            let least = if self.is_on_demand(slot) { 0 } else { self.context.messages().workers(spec).min };
            let succeeded = leaving.get(&(spec.role, &*spec.name)).copied().unwrap_or_default();
            (slot, spec.worker >= least.max(succeeded))
        });
        for (slot, rests) in rest.collect::<Vec<_>>() {
            self.slots[slot].rests = rests;
        }
    }

    /// A process says that something waits for a worker of `partition`, or for another one.
    pub fn on_wanted(&mut self, serial: u64, partition: u16) {
        let Some(&slot) = self.slots_of_partition(partition).first() else {
            return self.on_removed_wanted(serial, partition);
        };
        if !self.may_want(serial, slot) {
            return self.protocol_violation(serial);
        }
        self.wake_workers(slot);
    }

    /// One that was removed is wanted in vain, unless it is kept for workers that retire.
    fn on_removed_wanted(&mut self, serial: u64, partition: u16) {
        let mut kept = self.departing.iter().copied();
        let kept = kept.find(|&slot| self.specs[slot].partition == partition);
        if let Some(slot) = kept.filter(|&slot| self.may_want(serial, slot)) {
            self.wake_workers(slot);
        }
    }

    /// SECURITY: a site that was taken over starts nothing but what it may send requests to.
    fn may_want(&self, serial: u64, slot: usize) -> bool {
        let (from, wanted) = (self.spec_of(serial), &self.specs[slot]);
        match from.role {
            Role::Gate => true,
            Role::Site if from.site == wanted.site => wanted.role == Role::Service,
            Role::Site => wanted.role == Role::Site && links::relays(&self.context.config, from, wanted),
            _ => false,
        }
    }

    /// Has the process of a slot started that rests, and what it needs.
    pub(crate) fn wake(&mut self, slot: usize) {
        if !self.slots[slot].rests || self.stopping.is_some() {
            return;
        }
        for slot in self.helpers(slot).into_iter().chain([slot]) {
            if std::mem::take(&mut self.slots[slot].rests) {
                self.slots[slot].used = Some(Instant::now());
                self.wanted.push_back(slot);
            }
        }
    }

    /// Wakes what the process of a slot needs that is about to be started.
    pub(crate) fn wake_helpers(&mut self, slot: usize) {
        self.slots[slot].rests = false;
        self.helpers(slot).into_iter().for_each(|slot| self.wake(slot));
    }

    /// The slots of what works for that of another.
    fn helpers(&self, slot: usize) -> Vec<usize> {
        let of_site = self.lookup().of_site(self.specs[slot].site);
        of_site.iter().copied().filter(|&other| self.helps(other, slot)).collect()
    }

    /// Whether the process of one slot works for that of another: as its connector, its broker, its publisher, a data
    /// proxy, or the connector of such a proxy.
    fn helps(&self, helper: usize, slot: usize) -> bool {
        let (helper, spec) = (&self.specs[helper], &self.specs[slot]);
        helper.connects_for(spec)
            || links::has_data(&self.context.config, spec, helper)
            || links::has_templates(&self.context.config, spec, helper)
    }

    /// The next slots whose processes are wanted, not too many.
    pub fn next_wanted(&mut self) -> Vec<usize> {
        let now = Instant::now();
        let may_begin = self.may_begin() && self.memory_reclaim.held_until(now).is_none();
        let count = if may_begin { self.wanted.len().min(STARTS_PER_TURN) } else { 0 };
        if count > 0 {
            self.memory_reclaim.starts(now);
        }
        let next: Vec<usize> = self.wanted.drain(..count).collect();
        let is_kept = |slot: &usize| !self.slots[*slot].life.is_over() || self.departing.contains(slot);
        let fits = |slot: &usize| self.slots[*slot].current.is_none() && is_kept(slot);
        next.into_iter().filter(fits).collect()
    }

    /// Whether processes are to be started.
    pub fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A process says that it has had no connection for a while: it goes when it is its turn, if it can come again.
    pub fn on_idle(&mut self, serial: u64) {
        if self.may_leave(serial) {
            self.pace.wait(serial);
            self.let_idle_go(Instant::now());
        }
    }

    /// A process has given something to a worker of `partition`, none of which is idle any more as far as is known.
    /// Returns the slots of these, of which there are none if the process may not say so.
    ///
    /// SECURITY: a site that was taken over keeps nothing alive but what it may send requests to.
    pub fn on_used(&mut self, serial: u64, partition: u16) -> Vec<usize> {
        if !matches!(self.spec_of(serial).role, Role::Gate | Role::Site) {
            self.protocol_violation(serial);
            return Vec::new();
        }
        let slots = self.slots_of_partition(partition);
        if !slots.iter().all(|&slot| self.may_want(serial, slot)) {
            return Vec::new();
        }
        for &slot in &slots {
            self.slots[slot].used = Some(Instant::now());
            self.slots[slot].current.into_iter().for_each(|serial| self.pace.stay(serial));
        }
        slots
    }

    /// Has the next process go that nobody needs, if it may go now.
    pub(crate) fn let_idle_go(&mut self, now: Instant) {
        while let Some(serial) = self.pace.take(now) {
            // One that may not is busy with something; it says again when it is not.
            if self.may_leave(serial) {
                let slot = self.processes[&serial].slot;
                self.slots[slot].current = None;
                self.slots[slot].rests = true;
                self.pace.goes(serial, now);
                self.retire(serial);
            }
        }
    }

    /// Whether a process can go that nobody needs.
    pub(crate) fn may_leave(&self, serial: u64) -> bool {
        let Some(process) = self.processes.get(&serial).filter(|_| self.stopping.is_none()) else {
            return false;
        };
        let is_busy = process.ticket.is_some() || process.owes_commits > 0;
        let state = &self.slots[process.slot];
        let serves = process.stage == Stage::Serving && state.life == Life::Serving;
        let is_alone = state.current == Some(serial) && state.next.is_none();
        serves && !is_busy && is_alone && self.may_go(process.slot)
    }

    /// A process of a site has ended: what has worked for it, and for no other, rests, too.
    pub(crate) fn let_helpers_rest(&mut self, slot: usize) {
        let site = self.specs[slot].site;
        let of_site: Vec<(u64, usize)> =
            self.index.of_site(site).map(|serial| (serial, self.processes[&serial].slot)).collect();
        for &(serial, helper) in &of_site {
            let helps = self.helps(helper, slot) && self.slots[helper].current == Some(serial);
            // A data proxy and a publisher work for several services.
            let needs = |other: usize| self.helps(helper, other);
            let rests = |&other: &usize| !needs(other) || self.slots[other].rests;
            if helps
                && self.lookup().of_site(site).iter().all(rests)
                && !of_site.iter().any(|&(_, other)| needs(other))
            {
                self.slots[helper].current = None;
                self.slots[helper].rests = true;
                self.retire(serial);
            }
        }
    }
}

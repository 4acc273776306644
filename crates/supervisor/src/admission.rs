//! Whether there is room for a process beside what is kept for roles, and what becomes of a slot for which there is
//! none: the slot waits, and those that would send it requests answer with 503 meanwhile.
//!
//! Runs in: the launcher, as root. Sees: the kernel's figures. Never: has a role wait for what sites leave; takes a
//! slot that waits for one whose program fails.
//!
//! Processes, descriptors and memory are the server's as a whole, so that sites could take all of them. A gate that
//! ends then would never come back, and an upgrade or a relaunch could start nothing beside what runs.

use std::time::Instant;

use wire::{LauncherToGate, LauncherToSite, Role};

use crate::Supervisor;
use crate::footprint::threads_of;
use crate::limits::{self, Holder, Lack, ProcessLimit, RAISE_MEMORY};
use crate::memory::MemoryRoom;
use crate::need::{self, DESCRIPTORS_EACH, DESCRIPTORS_SENT};
use crate::process::Stage;
use crate::setup::links;

/// LIMIT: processes for which a successor of a site's process leaves room; the one that it replaces goes a moment
/// later.
const LEFT_BY_SUCCESSORS: u64 = 4;
/// LIMIT: descriptors that sites leave to the launcher: those that a start, a reload and an upgrade need for a moment.
const DESCRIPTORS_LEFT: u64 = 64;
/// LIMIT: slots for which it is looked at a time whether there is room.
const TRIED_MAX: usize = 8;

/// For what a process is to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Where there is none.
    New,
    /// Where there was no room for one before: some more has to be free, or what has room now would be killed for want
    /// of memory again.
    Waiting,
    /// In the place of another.
    Successor,
}

impl Supervisor {
    /// What there is not enough of for a process of this slot, if so, and which limit that is and how it is raised.
    pub fn lack_of_room(&mut self, slot: usize, claim: Claim, now: Instant) -> Option<(Lack, String)> {
        if !self.specs[slot].role.is_of_a_site() {
            return None;
        }
        self.figures.look(now, self.serial);
        let lack = self.lack_of_processes(slot, claim).map(|why| (Lack::Processes, why));
        let lack = lack.or_else(|| self.lack_of_descriptors(claim).map(|why| (Lack::Descriptors, why)));
        // Where memory is short, those of sites on demand go that nobody uses, and their starts wait for that
        // (`scarcity`).
        let has_own_rule = self.is_on_demand(slot);
        lack.or_else(|| {
            let why = (!has_own_rule).then(|| self.lack_of_memory(claim, now)).flatten();
            why.map(|why| (Lack::Memory, why))
        })
    }

    fn lack_of_processes(&self, slot: usize, claim: Claim) -> Option<String> {
        let reserve = match claim {
            Claim::Successor => LEFT_BY_SUCCESSORS,
            Claim::New | Claim::Waiting => need::reserve(self.role_count()),
        };
        let wanted = threads_of(self.specs[slot].role) + reserve;
        let since = self.figures.since(self.serial);
        let own = self.processes.len() as u64 + need::BESIDE;
        self.figures.processes.iter().find_map(|ProcessLimit { most, now, holder }| {
            let there = now.map_or(own, |now| now + since);
            let lacks = there + wanted > *most;
            lacks.then(|| said_of(holder, there, *most, reserve))
        })
    }

    fn lack_of_descriptors(&self, claim: Claim) -> Option<String> {
        let limit = limits::descriptors();
        let most = limit?;
        let processes = self.processes.len() as u64;
        let reserve = match claim {
            Claim::Successor => DESCRIPTORS_LEFT / 2,
            Claim::New | Claim::Waiting => {
                DESCRIPTORS_LEFT
                    + need::reserve(self.role_count()) * DESCRIPTORS_EACH
                    + (processes + 1) * DESCRIPTORS_SENT
            }
        };
        let known =
            self.figures.descriptors.map(|there| there + self.figures.since(self.serial) * DESCRIPTORS_EACH);
        let there = known.unwrap_or(processes * DESCRIPTORS_EACH + DESCRIPTORS_LEFT);
        (there + DESCRIPTORS_EACH + reserve > most).then(|| {
            let remedy = limits::of_descriptors(limit).map(|bound| bound.remedy).unwrap_or_default();
            format!(
                "the launcher has {there} of the {most} descriptors that it may have, of which {reserve} are kept for roles and what \
                 replaces them: {remedy}"
            )
        })
    }

    fn lack_of_memory(&mut self, claim: Claim, now: Instant) -> Option<String> {
        let halves = match claim {
            Claim::Successor => 1,
            Claim::New => 2,
            Claim::Waiting => 4,
        };
        let (free, reserve, all) = self.memory.shortage(now, halves)?;
        Some(format!(
            "{} of {} MiB of memory are free, of which {} MiB are kept for roles and what replaces them: {RAISE_MEMORY}",
            free >> 20,
            all >> 20,
            reserve >> 20
        ))
    }

    /// How many processes work for all sites.
    pub(crate) fn role_count(&self) -> u64 {
        need::role_count(&self.context.config, self.listeners.first().map_or(1, Vec::len))
    }

    /// Whether there is no room for a successor of a slot's process, and will be, as others of this launcher's
    /// processes go.
    pub fn is_room_coming(&mut self, slot: usize, now: Instant) -> bool {
        self.lack_of_room(slot, Claim::Successor, now).is_some()
            && self.processes.values().any(|process| process.stage == Stage::Retiring)
    }

    /// Has a slot wait, if there is no room for a process that it is to have; whether the slot waits.
    pub fn waits_for_room(&mut self, slot: usize, now: Instant) -> bool {
        match self.lack_of_room(slot, Claim::New, now) {
            None => {
                self.room.leave(slot);
                false
            }
            Some((lack, why)) => {
                self.room.wait(slot, !self.specs[slot].role.is_of_a_site(), lack, now);
                self.is_without_room(slot, &why, now);
                true
            }
        }
    }

    /// The kernel has refused a process for want of something: the slot waits, and that is no failure of its program.
    pub(crate) fn refused_room(&mut self, slot: usize, lack: Lack, why: &str) {
        let now = Instant::now();
        self.room.refused(slot, !self.specs[slot].role.is_of_a_site(), lack, now);
        self.is_without_room(slot, why, now);
    }

    fn is_without_room(&mut self, slot: usize, why: &str, now: Instant) {
        self.starts.remove(&slot);
        self.slots[slot].rests = false;
        self.slots[slot].last_exit = format!("waits for room: {why}");
        if self.room.is_said(now) {
            let title = self.specs[slot].title();
            let others = match self.room.count() {
                1 => String::new(),
                count => format!(", as {} others do,", count - 1),
            };
            self.log.warning(format!(
                "{title}{others} waits for room: {why}; requests of sites that wait are answered with 503, and `bulkhead status` names \
                 them"
            ));
        }
        self.tell_of_no_room(slot);
        self.announce();
    }

    /// For what a slot waits, if so.
    pub fn waits_for(&self, slot: usize) -> Option<Lack> {
        self.room.lack_of(slot)
    }

    /// How many slots wait for room.
    pub fn count_without_room(&self) -> usize {
        self.room.count()
    }

    /// Has those that wait longest started, as far as there is room.
    pub(crate) fn room_on_time(&mut self, now: Instant) {
        if self.stopping.is_some() || !self.room.is_look_due(now) {
            return;
        }
        for _ in 0..TRIED_MAX {
            let Some(slot) = self.room.next(now) else { break };
            if self.lack_of_room(slot, Claim::Waiting, now).is_some() {
                break;
            }
            self.room.leave(slot);
            self.starts.insert(slot, now);
            if self.room.is_over() {
                self.log.info("there is room for all processes again");
            }
        }
    }

    /// How short memory is; where something waits for room, as short as where processes go that nobody uses.
    pub(crate) fn shortage(&mut self, now: Instant) -> MemoryRoom {
        let room = self.memory.room(now);
        if self.room.count() > 0 { room.min(MemoryRoom::Scarce) } else { room }
    }

    /// Whether no process of a slot's partition works, or is on its way, and one of them waits for room.
    fn is_partition_without_room(&self, slot: usize) -> bool {
        let workers = self.workers_beside(slot);
        workers.iter().any(|&slot| self.room.lack_of(slot).is_some())
            && workers
                .iter()
                .all(|&slot| self.slots[slot].current.is_none() && !self.starts.contains_key(&slot))
    }

    /// Tells those that send requests to the partition of a slot that there is no room for its process. They know by
    /// themselves when there is one: they are given a channel to it.
    fn tell_of_no_room(&mut self, slot: usize) {
        let spec = &self.specs[slot];
        if !spec.role.is_worker() || !self.is_partition_without_room(slot) {
            return;
        }
        let site = &self.context.config.sites[usize::from(spec.site)];
        let is_relayed_to = spec.role == Role::Site && site.path != "/";
        let fronts = if is_relayed_to { self.hearing(Role::Site) } else { Vec::new() };
        let relays = |front: &u64| links::relays(&self.context.config, self.spec_of(*front), spec);
        let fronts: Vec<u64> = fronts.into_iter().filter(relays).collect();
        let told: Vec<u64> =
            self.index.of_role(Role::Gate).chain(self.index.of_site(spec.site)).chain(fronts).collect();
        told.into_iter().for_each(|serial| self.send_no_room(serial, slot));
    }

    /// Tells a new gate or site for which of its partitions there is no room.
    pub fn send_all_without_room(&mut self, serial: u64) {
        let (role, site) = (self.spec_of(serial).role, self.spec_of(serial).site);
        let is_told = |slot: &usize| match role {
            Role::Gate => true,
            Role::Site => self.specs[*slot].site == site || self.specs[*slot].role == Role::Site,
            _ => false,
        };
        let slots: Vec<usize> = self.room.slots().filter(is_told).collect();
        for slot in slots {
            let spec = &self.specs[slot];
            let is_front = || links::relays(&self.context.config, self.spec_of(serial), spec);
            let is_told = role == Role::Gate || spec.site == site || is_front();
            if is_told && spec.role.is_worker() && self.is_partition_without_room(slot) {
                self.send_no_room(serial, slot);
            }
        }
    }

    fn send_no_room(&mut self, serial: u64, slot: usize) {
        let partition = self.specs[slot].partition;
        // One of the launcher before may be of a version that does not know the message.
        let knows =
            self.processes.get(&serial).is_some_and(|process| process.is_configured && process.is_ours);
        match self.spec_of(serial).role {
            Role::Gate if knows => self.send(serial, &LauncherToGate::NoRoom { partition }, None),
            Role::Site if knows => self.send(serial, &LauncherToSite::NoRoom { partition }, None),
            _ => {}
        }
    }
}

fn said_of(holder: &Holder, there: u64, most: u64, reserve: u64) -> String {
    format!(
        "{holder} has {there} of the {most} processes and threads that it may have, of which {reserve} are kept for roles and what \
         replaces them: {}",
        holder.remedy()
    )
}

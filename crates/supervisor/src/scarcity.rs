//! Processes that go before their time where memory is scarce: those of sites that start on demand, the one first that
//! was used longest ago.
//!
//! Runs in: the launcher, as root. Sees: the kernel's figures, and whether a process has connections. Never: has one go
//! that has a connection, or that does not start on demand.
//!
//! A worker says `Idle` after `idle_stop`, which is minutes. When there is no more room (`memory`, `room`), the
//! launcher asks those that were used longest ago whether they have a connection now, as for `bulkhead status`; those
//! that have none go as all idle ones do (`pace`). When there is hardly any room, what is wanted waits for them.
//!
//! Source: Mihara, "Hi-sap" (2009), the content access scheduler, which stops workers when memory is short.

use std::time::{Duration, Instant};

use wire::Counters;

use crate::Supervisor;
use crate::memory::MemoryRoom;
use crate::memory_reclaim::LOOK_AGAIN;

/// How often it is looked whether memory is scarce while a process is there that could go.
const LOOK: Duration = Duration::from_secs(1);
/// LIMIT: processes that are asked at a time; as many go in a second at the least.
const ASKED_MAX: usize = 8;

impl Supervisor {
    /// Looks whether memory is scarce, and asks those that could go.
    pub(crate) fn spare_memory(&mut self, now: Instant) {
        if self.memory_reclaim.next.is_none_or(|next| next > now) {
            return;
        }
        let room = self.shortage(now);
        if room > MemoryRoom::Scarce || self.stopping.is_some() {
            self.memory_reclaim.held_until = None;
            let is_there = self.processes.values().any(|process| self.could_go(process.slot));
            self.memory_reclaim.next = is_there.then(|| now + LOOK);
            return;
        }
        // What waits for room of another kind may do so for long.
        let is_memory = self.memory.room(now) <= MemoryRoom::Scarce;
        self.memory_reclaim.next = Some(now + if is_memory { LOOK_AGAIN } else { LOOK });
        for serial in self.used_longest_ago(ASKED_MAX.saturating_sub(self.pace.count())) {
            self.memory_reclaim.asked.insert(serial, now);
            self.ask_for_report(serial);
        }
        let is_answered_soon = self.memory_reclaim.is_answered_soon(now);
        let frees_room = self.pace.is_under_way() || is_answered_soon;
        self.memory_reclaim.held_until = (room == MemoryRoom::Full && frees_room).then(|| now + LOOK_AGAIN);
    }

    /// A process has said how many connections it has; where it was asked to make room, and has none, it goes.
    pub fn on_spare_counters(&mut self, serial: u64, counters: &Counters) {
        if self.memory_reclaim.asked.remove(&serial).is_none() {
            return;
        }
        if counters.connections_now > 0 {
            let slot = self.processes.get(&serial).map(|process| process.slot);
            slot.into_iter().for_each(|slot| self.slots[slot].used = Some(Instant::now()));
        } else if self.shortage(Instant::now()) <= MemoryRoom::Scarce {
            self.on_idle(serial);
        }
    }

    /// So many of the processes that may go, without those that were asked or go already.
    fn used_longest_ago(&self, count: usize) -> Vec<u64> {
        let mut spare: Vec<(Instant, u64)> = self
            .processes
            .iter()
            .filter(|(serial, process)| {
                let is_known = self.memory_reclaim.asked.contains_key(serial) || self.pace.waits(**serial);
                !is_known && self.could_go(process.slot) && self.may_leave(**serial)
            })
            .map(|(&serial, process)| (self.slots[process.slot].used.unwrap_or(process.since), serial))
            .collect();
        spare.sort_unstable();
        spare.into_iter().take(count).map(|(_, serial)| serial).collect()
    }

    fn could_go(&self, slot: usize) -> bool {
        self.specs[slot].role.is_worker() && self.is_on_demand(slot)
    }
}

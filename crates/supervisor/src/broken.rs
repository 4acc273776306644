//! Slots whose processes keep ending: who is told that a partition is broken, and when it is whole again.
//!
//! Runs in: the launcher, as root. Sees: nothing of what children say. Never: starts a process that is broken by
//! itself.

use wire::{LauncherToGate, LauncherToSite, Role};

use crate::Supervisor;
use sys::file_version::FileVersion;

impl Supervisor {
    /// Notes that a slot is broken, with the version of the program that failed, or is no more.
    pub fn set_broken(&mut self, slot: usize, broken: Option<Option<FileVersion>>) {
        let before = self.is_partition_broken(slot);
        if broken.is_some() {
            self.broken.insert(slot);
        } else {
            self.broken.remove(&slot);
        }
        self.slots[slot].broken = broken;
        let now = self.is_partition_broken(slot);
        if before != now {
            let told = self.processes.iter().filter(|(_, process)| process.is_configured);
            for serial in told.map(|(&serial, _)| serial).collect::<Vec<_>>() {
                self.send_broken(serial, slot, now);
            }
        }
    }

    /// Makes a broken partition whole again and starts it.
    pub fn clear_broken(&mut self, slot: usize) {
        self.slots[slot].backoff.forgive();
        self.set_broken(slot, None);
        self.start(slot);
    }

    /// Tells a new gate or site which of its partitions are broken.
    pub fn send_all_broken(&mut self, serial: u64) {
        for slot in self.broken.clone() {
            self.send_broken(serial, slot, self.is_partition_broken(slot));
        }
    }

    /// Tells a process, if it is a gate or a site, whether the partition of a slot is broken.
    pub fn send_broken(&mut self, serial: u64, slot: usize, broken: bool) {
        let partition = self.specs[slot].partition;
        match self.spec_of(serial).role {
            Role::Gate => self.send(serial, &LauncherToGate::Broken { partition, broken }, None),
            Role::Site => self.send(serial, &LauncherToSite::Broken { partition, broken }, None),
            _ => {}
        }
    }
}

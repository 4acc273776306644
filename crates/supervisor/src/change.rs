//! Slots that come and go while the others are filled.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: moves a slot, or gives the number of one to another.
//!
//! A change has two halves. Its processes are started beside those that they stand for, which know nothing of them; when
//! all have come up, they take their places, or else they go and nothing has changed.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use config::Config;

use crate::backoff::Rule;
use crate::error::Error;
use crate::life::Life;
use crate::process::Stage;
use crate::spawn::context::duplicate;
use crate::spawn::process_spec::ProcessSpec;
use crate::{Slot, Supervisor};

/// A configuration, and what goes with it.
#[derive(Debug)]
pub struct Running {
    /// The configuration, each site at its number.
    pub config: Config,
    /// The listening sockets, by listener, then by gate.
    pub listeners: Vec<Vec<OwnedFd>>,
    /// The names of the sites in the order of the file: clients that name no host get the first site.
    pub order: Vec<String>,
}

impl Supervisor {
    /// Adds slots, which others know nothing of until the change is committed.
    pub fn add_slots(&mut self, specs: Vec<ProcessSpec>) -> std::ops::Range<usize> {
        let first = self.specs.len();
        self.slots.extend(specs.iter().map(|_| Slot { life: Life::Pending, ..Slot::default() }));
        self.specs.extend(specs);
        first..self.specs.len()
    }

    /// Has the slots of a site go with the change.
    pub fn leave_site(&mut self, site: u16) {
        for (spec, slot) in self.specs.iter().zip(&mut self.slots) {
            if spec.site == site && slot.life == Life::Serving {
                slot.life = Life::Leaving;
            }
        }
    }

    /// Every process that is to run, as the process of a slot of this life sees them, in the order of the file.
    pub fn specs_for(&self, life: Life) -> Vec<&ProcessSpec> {
        let other = if life == Life::Pending { Life::Pending } else { Life::Leaving };
        let slots = self.specs.iter().zip(&self.slots);
        let there = slots.filter(|(_, slot)| slot.life == Life::Serving || slot.life == other);
        let mut specs: Vec<&ProcessSpec> = there.map(|(spec, _)| spec).collect();
        let places: HashMap<&str, usize> = (0..).zip(&self.order).map(|(at, name)| (&**name, at)).collect();
        let sites = &self.context.config.sites;
        specs.sort_by_key(|spec| {
            sites.get(usize::from(spec.site)).and_then(|site| places.get(&*site.name)).copied()
        });
        specs
    }

    /// Ends the change: what was pending serves, or is removed; what was leaving is removed, or serves. Those that are
    /// removed, as slots.
    pub fn end_change(&mut self, committed: bool) -> Vec<usize> {
        let mut removed = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            slot.life = match (slot.life, committed) {
                (Life::Pending, true) | (Life::Leaving, false) => Life::Serving,
                (Life::Pending, false) | (Life::Leaving, true) => {
                    removed.push(number);
                    Life::Removed
                }
                (life, _) => life,
            };
        }
        removed
    }

    /// Retires the processes of a slot that was removed.
    pub fn empty_slot(&mut self, slot: usize) {
        let state = &mut self.slots[slot];
        (state.start_at, state.broken) = (None, None);
        let processes = [state.current.take(), state.next.take()];
        processes.into_iter().flatten().for_each(|serial| self.retire(serial));
    }

    /// The listening sockets of a gate, once more.
    pub fn sockets_of(&self, gate: usize) -> Result<Vec<OwnedFd>, Error> {
        self.listeners.iter().map(|of| duplicate(&of[gate])).collect()
    }

    /// A process is sent an update. One that serves is to say in time that it holds; whether there is such a one.
    pub fn expect_commit(&mut self, serial: u64, ticket: Option<u32>) -> bool {
        let timeout = Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
        let Some(process) = self.processes.get_mut(&serial) else { return false };
        process.owes_commits += 1;
        let serves = process.stage == Stage::Serving && ticket.is_some();
        if serves {
            process.ticket = ticket;
            process.deadline = Some(Instant::now() + timeout);
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
        if process.owes_commits > 0 || process.stage != Stage::Serving {
            return None;
        }
        process.deadline = None;
        process.ticket.take()
    }

    /// Whether a successor is under way.
    pub fn is_relaunching(&self) -> bool {
        self.slots.iter().any(|slot| slot.next.is_some())
    }

    /// Takes over another configuration; what was there comes back.
    pub fn replace_config(&mut self, new: Running) -> Running {
        self.rule = Rule::of(&new.config.restart);
        Running {
            config: std::mem::replace(&mut self.context.config, new.config),
            listeners: std::mem::replace(&mut self.listeners, new.listeners),
            order: std::mem::replace(&mut self.order, new.order),
        }
    }

    /// Has every use of the configuration's sites see this from here on.
    pub fn change_sites(&mut self, change: impl FnOnce(&mut Vec<config::Site>)) {
        change(&mut self.context.config.sites);
    }
}

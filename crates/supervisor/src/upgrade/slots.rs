//! Slots: what each is for, and what has become of its processes.
//!
//! Runs in: the launcher, as root. Sees: the record of the launcher before. Never: starts a process.

use std::time::Instant;

use jail::Identity;
use wire::NO_PARTITION;
use wire::Text;
use wire::successor::{LauncherToSuccessor, NONE, Stay};

use crate::backoff::Backoff;
use crate::error::Error;
use crate::life::Life;
use crate::spawn::process_spec::ProcessSpec;
use crate::upgrade::{Handed, Record};
use crate::{Slot, Supervisor};

/// No identity, as in a rootless run.
const NOBODY: u32 = 0;

impl Supervisor {
    pub(super) fn hand_over_slots<'a>(&'a self, record: &mut Record<'a>) {
        for (slot, (spec, state)) in (0u32..).zip(self.specs.iter().zip(&self.slots)) {
            record.add(spec_item(spec, state.life));
            let (failures, unclean) = state.backoff.past();
            let unclean = unclean.map(|at| record.age(at)).collect();
            // What waits for room is looked at anew.
            let waiting = self.waits_for(slot as usize).map(|_| Instant::now());
            let start_ms = record.left(self.starts.get(&(slot as usize)).copied().or(waiting));
            record.add(LauncherToSuccessor::SlotState {
                slot,
                rests: state.rests,
                wanted: self.wanted.contains(&(slot as usize)),
                broken: state.broken.is_some(),
                restarts: state.restarts,
                last_exit: Text::new(state.last_exit.as_str()),
                failures,
                unclean,
                start_ms,
                current: state.current.unwrap_or(NONE),
            });
            if let Some(memory) = &state.memory {
                let descriptor = record.leave(memory);
                record.add(LauncherToSuccessor::LeftMemory { slot, descriptor });
            }
            if state.oom_kills > 0 {
                record.add(LauncherToSuccessor::OomKills { slot, count: state.oom_kills });
            }
        }
        record.add(LauncherToSuccessor::AllOomKills { count: self.oom_kills.all });
    }

    /// Has the slots be as they were.
    pub(super) fn resume_slots(&mut self, handed: &Handed) -> Result<(), Error> {
        for item in handed.items() {
            match item {
                LauncherToSuccessor::LeftMemory { slot, descriptor } => {
                    self.known_slot(*slot)?.memory = Some(handed.copy(*descriptor)?);
                    continue;
                }
                LauncherToSuccessor::OomKills { slot, count } => self.known_slot(*slot)?.oom_kills = *count,
                LauncherToSuccessor::AllOomKills { count } => self.oom_kills.all = *count,
                _ => {}
            }
            let LauncherToSuccessor::SlotState { slot, rests, wanted, broken, start_ms, current, .. } = item
            else {
                continue;
            };
            let number = *slot as usize;
            let last = state_of(handed, item);
            let state = self.known_slot(*slot)?;
            let life = state.life;
            *state = Slot { life, rests: *rests, current: (*current != NONE).then_some(*current), ..last };
            if let Some(at) = handed.after(*start_ms) {
                self.starts.insert(number, at);
            }
            if *wanted {
                self.wanted.push_back(number);
            }
            if *broken {
                // What program failed is not said: the programs may all be others now.
                self.slots[number].broken = Some(self.version(number));
                self.broken.insert(number);
            }
        }
        Ok(())
    }
}

impl Supervisor {
    fn known_slot(&mut self, slot: u32) -> Result<&mut Slot, Error> {
        self.slots.get_mut(slot as usize).ok_or_else(|| Error::record("it names a slot that it lacks"))
    }
}

fn spec_item(spec: &ProcessSpec, life: Life) -> LauncherToSuccessor {
    let (uid, gid) = spec.identity.map_or((NOBODY, NOBODY), |identity| (identity.id(), identity.gid()));
    LauncherToSuccessor::Slot {
        role: spec.role,
        name: Text::new(spec.name.as_str()),
        partition: spec.partition,
        site: spec.site,
        index: spec.index as u32,
        worker: spec.worker,
        generation: spec.generation,
        uid,
        gid,
        stay: match life {
            Life::Removed => Stay::Removed,
            Life::Free => Stay::Free,
            Life::Serving | Life::Pending | Life::Leaving => Stay::Serving,
        },
    }
}

/// What each slot is for, in the order of the slots, and for how long it is there.
pub(super) fn specs(handed: &Handed, sites: usize) -> Result<Vec<(ProcessSpec, Life)>, Error> {
    let mut specs = Vec::new();
    for item in handed.items() {
        let LauncherToSuccessor::Slot {
            role,
            name,
            partition,
            site,
            index,
            worker,
            generation,
            uid,
            gid,
            stay,
        } = item
        else {
            continue;
        };
        if *site != NO_PARTITION && usize::from(*site) >= sites {
            return Err(Error::record("it names a site that it lacks"));
        }
        let identity = (*uid != NOBODY).then(|| Identity::account(*uid, *gid));
        if identity == Some(None) {
            return Err(Error::record("a process has an identity that there cannot be"));
        }
        let life = match stay {
            Stay::Serving => Life::Serving,
            Stay::Removed => Life::Removed,
            Stay::Free => Life::Free,
        };
        let spec = ProcessSpec {
            role: *role,
            name: name.as_str().to_owned(),
            partition: *partition,
            site: *site,
            index: *index as usize,
            worker: *worker,
            generation: *generation,
            identity: identity.flatten(),
        };
        specs.push((spec, life));
    }
    Ok(specs)
}

/// What is known of a slot's past.
fn state_of(handed: &Handed, item: &LauncherToSuccessor) -> Slot {
    let LauncherToSuccessor::SlotState { restarts, last_exit, failures, unclean, .. } = item else {
        return Slot::default();
    };
    let unclean = unclean.iter().map(|age| handed.before(*age)).collect();
    Slot {
        backoff: Backoff::known(*failures, unclean),
        restarts: *restarts,
        last_exit: last_exit.as_str().to_owned(),
        ..Slot::default()
    }
}

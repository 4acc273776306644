//! Programs that are examined beside the loop before a process is started again: when that begins, and what follows.
//!
//! Runs in: the launcher, as root. Sees: ends of the processes that examine. Never: waits for one, or starts a program of
//! which it does not know all when its examination has ended.

use std::time::{Duration, Instant};

use crate::Supervisor;
use crate::examinations::Running;
use crate::life::Life;

/// LIMIT: how long an examination may take: what the inspector and a loader may, one after the other, and a copy.
const TIME: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Whether the program of a slot has to be examined before a process is started, which goes on beside the loop.
    ///
    /// What the operator asks for is examined at once, as that answers; and before everything is up for the first time, nothing else
    /// is waited for.
    pub fn is_examined_first(&mut self, slot: usize, now: Instant) -> bool {
        if !self.is_examined_beside(slot) {
            return false;
        }
        if let Some(running) = self.examinations.running.get_mut(&slot) {
            if running.deadline <= now {
                running.examination.child.kill();
                // Its end is what is waited for.
                running.deadline = now + TIME;
                self.starts.entry(slot).and_modify(|start| *start = now + TIME);
            }
            return true;
        }
        if self.examinations.ended.remove(&slot) || self.context.is_known(&self.specs[slot]) {
            return false;
        }
        let spec = self.specs[slot].clone();
        let begun = self.context.examine_beside(&spec);
        let begun = begun.and_then(|examination| Ok((self.watch_helper(&examination.child)?, examination)));
        match begun {
            Ok((serial, examination)) => {
                let deadline = now + TIME;
                if let Some(start) = self.starts.get_mut(&slot) {
                    *start = deadline;
                }
                self.examinations.running.insert(slot, Running { serial, examination, deadline });
                true
            }
            Err(error) => {
                self.log.warning(format!("{}: cannot be examined: {error}", self.specs[slot].title()));
                false
            }
        }
    }

    /// Has `start` start processes for a slot, if all is known that there is to know of its program.
    pub fn if_known(&mut self, slot: usize, start: impl FnOnce(&mut Self)) {
        self.context.only_known.set(self.is_examined_beside(slot));
        start(self);
        self.context.only_known.set(false);
    }

    /// Whether the program of a slot is examined beside the loop at all.
    fn is_examined_beside(&self, slot: usize) -> bool {
        self.announced && self.stopping.is_none() && self.context.has_helper(&self.specs[slot])
    }

    /// Takes notice of the end of an examination, if `serial` is one.
    pub fn on_examined(&mut self, serial: u64) -> bool {
        let found = self.examinations.running.iter().find(|(_, running)| running.serial == serial);
        let Some((&slot, running)) = found else { return false };
        let exit = match running.examination.child.try_wait() {
            Ok(None) => return true,
            Ok(exit) => exit,
            Err(_) => None,
        };
        let Some(Running { examination, .. }) = self.examinations.running.remove(&slot) else { return true };
        self.context.adopt(examination, exit);
        let is_there = self.slots.get(slot).is_some_and(|state| state.life == Life::Serving);
        if is_there && (self.starts.contains_key(&slot) || self.broken.contains(&slot)) {
            self.examinations.ended.insert(slot);
            if let Some(start) = self.starts.get_mut(&slot) {
                *start = Instant::now();
            }
        }
        true
    }
}

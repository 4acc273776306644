//! Programs that are examined beside the loop before a process is started: when that begins, and what follows.
//!
//! Runs in: the launcher, as root. Sees: ends of the processes that examine. Never: waits for one, or starts a program
//! of which it does not know all when its examination has ended.

use std::time::{Duration, Instant};

use wire::Role;

use crate::Supervisor;
use crate::examinations::{News, Running};

/// LIMIT: how long an examination may take: what the inspector and a loader may, one after the other, and a copy.
const TIME: Duration = Duration::from_secs(10);
/// How long a start waits for something else that is due before it.
const LATER: Duration = Duration::from_secs(1);

impl Supervisor {
    /// From here on, programs are examined beside the loop: others wait for it.
    pub fn examine_beside(&self) {
        self.context.examines_beside.set(true);
    }

    /// Whether the program of a slot has to be examined before a process is started, which goes on beside the loop.
    /// What is due of the slot is due when that has ended.
    pub fn is_examined_first(&mut self, slot: usize, now: Instant) -> bool {
        let is_examined = self.stopping.is_none()
            && (self.is_opened_first(slot, now)
                || self.context.is_examined_beside(&self.specs[slot])
                    && (self.examinations.is_running(slot) || self.is_examination_due(slot, now)));
        if is_examined && let Some(start) = self.starts.get_mut(&slot) {
            *start = now + 2 * TIME;
        }
        is_examined
    }

    /// Begins to examine the program of a slot, if not all is known of it; whether that was begun, or waits for others.
    fn is_examination_due(&mut self, slot: usize, now: Instant) -> bool {
        // Before it is asked whether all is known of it, which may give the program to this slot's uid.
        if self.waits_for_program(slot) {
            return true;
        }
        if self.examinations.has_ended(slot) || self.examinations.is_leaving(slot) {
            return false;
        }
        let spec = self.specs[slot].clone();
        if self.context.is_known(&spec) {
            return false;
        }
        if self.examinations.are_full() {
            self.examinations.wait(slot);
            return true;
        }
        let begun = self.context.begin_examination(&spec);
        let begun = begun.and_then(|examination| Ok((self.watch_copy(&examination.child)?, examination)));
        match begun {
            Ok((serial, examination)) => {
                self.examinations.begin(slot, Running { serial, examination, deadline: now + TIME });
                true
            }
            Err(error) => {
                self.log.warning(format!("{}: cannot be examined: {error}", self.specs[slot].title()));
                false
            }
        }
    }

    /// The same for a slot that is to be started now, and is when that has ended.
    pub fn is_started_later(&mut self, slot: usize, now: Instant) -> bool {
        if self.specs[slot].role == Role::Filter {
            return false;
        }
        let is_later = self.is_examined_first(slot, now);
        if is_later {
            self.start_when_examined(slot, now);
        }
        is_later
    }

    /// Has a slot started when an examination has ended that was begun for it, or for another filter of its chain.
    pub(crate) fn start_when_examined(&mut self, slot: usize, now: Instant) {
        self.starts.insert(slot, now + 2 * TIME);
    }

    /// Those of these filters of which the programs have to be examined before a chain is made of them.
    pub fn filters_examined_first(&mut self, filters: &[usize], now: Instant) -> Vec<usize> {
        filters.iter().copied().filter(|&slot| self.is_examined_first(slot, now)).collect()
    }

    /// Takes notice of the end of an examination, if `serial` is one.
    pub fn on_examined(&mut self, serial: u64) -> bool {
        if self.examinations.reap(serial) || self.on_opened(serial, Instant::now()) {
            return true;
        }
        let Some((slot, running)) = self.examinations.of_serial(serial) else { return false };
        let exit = match running.examination.child.try_wait() {
            Ok(None) => return true,
            Ok(exit) => exit,
            Err(_) => None,
        };
        if let Some(examination) = self.examinations.end(slot) {
            self.context.adopt(&self.specs[slot], examination, exit);
        }
        true
    }

    /// What has become next of a slot whose program is examined, once. What was due of the slot is due now.
    pub fn next_examined(&mut self, now: Instant) -> Option<(usize, News)> {
        self.examinations.end_late(now);
        self.openings_on_time(now);
        loop {
            let (slot, news) = self.examinations.next_news()?;
            match news {
                News::Silent => return Some((slot, news)),
                // Another may have been given the program since.
                _ if self.waits_for_program(slot) => {}
                News::Ended | News::Room => {
                    self.set_due(slot, now);
                    return Some((slot, news));
                }
            }
        }
    }

    fn set_due(&mut self, slot: usize, now: Instant) {
        let specs = &self.specs;
        let is_filter = specs[slot].role == Role::Filter;
        let is_due = |other: &usize| *other == slot || is_filter && specs[*other].role == Role::Filter;
        self.starts.iter_mut().filter(|(other, _)| is_due(other)).for_each(|(_, start)| *start = now);
    }

    /// Ends all examinations, as a successor of this process knows nothing of them; whether one has yet to go.
    pub fn end_examinations(&mut self) -> bool {
        let later = Instant::now() + LATER;
        for slot in self.examinations.end_all() {
            self.starts.entry(slot).and_modify(|start| *start = later);
        }
        let now = Instant::now();
        let are_open = self.end_openings(now);
        !are_open || !self.examinations.are_over(now)
    }
}

//! What is due when: starts again, ends of those that are late, looks at broken programs and at logs that nobody has
//! read.
//!
//! Runs in: the launcher, as root. Sees: the clock, versions of program files, how many bytes wait in a pipe. Never:
//! looks at all processes for the sake of one: there may be thousands, of which each start and each end is a turn of
//! the loop.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use wire::Role;

use crate::process::Stage;
use crate::unread::FIRST_START;
use crate::{BROKEN_CHECK, Supervisor};

/// How often it is looked whether a logger has read what processes that are gone have left.
const UNREAD_CHECK: Duration = Duration::from_millis(100);

/// LIMIT: processes (or chains of filters) that are started again in one turn of the loop, each of which waits for the
/// child to make its jail; messages and ends of others are heard in between.
const RESTARTS_PER_TURN: usize = 1;

impl Supervisor {
    /// How long a process may take to come up that nobody waits for.
    pub(crate) fn first_start_max(&self) -> Duration {
        Duration::from_millis(self.context.config.limits.start_timeout_ms.into()) * FIRST_START
    }

    /// Sets by when a process must be ready, or gone.
    pub(crate) fn set_deadline(&mut self, serial: u64, at: Option<Instant>) {
        let Some(process) = self.processes.get_mut(&serial) else { return };
        if let Some(before) = std::mem::replace(&mut process.deadline, at) {
            self.timed.remove(&(before, serial));
        }
        self.timed.extend(at.map(|at| (at, serial)));
    }

    /// When `on_time` is to be called, at the latest.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let starts = self.starts.values().copied().filter(|at| *at > now || self.may_begin());
        let processes = self.timed.first().map(|(at, _)| *at);
        let check = (!self.broken.is_empty()).then(|| now + BROKEN_CHECK);
        let unread = (!self.unread_logs.is_empty()).then_some(self.next_unread_check);
        let wanted = (self.has_wanted() && self.may_begin())
            .then(|| self.memory_reclaim.held_until(now).unwrap_or(now));
        let others =
            [processes, check, unread, wanted, self.pace.deadline(), self.chain_deadline(), self.reaper_due];
        let others = others.into_iter().chain([self.closer.deadline(now), self.examinations.deadline()]);
        let news = self.examinations.has_news().then_some(now);
        let others = others.chain([
            news,
            self.openings.deadline(),
            self.copies.deadline(now),
            self.memory_reclaim.deadline(),
            self.room.deadline(),
            self.announcement_due(now),
        ]);
        starts.chain(others.flatten()).min()
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: Instant) {
        self.copies.weigh(&self.context.background, now);
        self.room_on_time(now);
        let mut left = RESTARTS_PER_TURN;
        for slot in due_in_turns(&self.starts, self.next_restart, now) {
            // Filters start together with the first of them.
            let is_filter = self.specs[slot].role == Role::Filter;
            if self.starts.contains_key(&slot) && (is_filter || !self.is_examined_first(slot, now)) {
                // Others are due in the next turn as well.
                if left == 0 || !self.may_begin() {
                    break;
                }
                left -= 1;
                self.next_restart = slot + 1;
                self.start(slot);
            }
        }
        for slot in self.broken.clone() {
            if let Some(failed) = self.slots[slot].broken
                && self.stopping.is_none()
                && self.version(slot).is_some_and(|version| Some(version) != failed)
            {
                if self.is_examined_first(slot, now) {
                    continue;
                }
                self.log.info(format!("{}: its program has changed", self.specs[slot].title()));
                self.clear_broken(slot);
            }
        }
        let late: Vec<u64> =
            self.timed.iter().take_while(|(at, _)| *at <= now).map(|(_, serial)| *serial).collect();
        late.into_iter().for_each(|serial| self.overdue(serial));
        self.close_foreign(now);
        self.spare_memory(now);
        self.let_idle_go(now);
        self.forget_read_logs(now);
        self.chain_on_time(now);
        self.reap_on_time(now);
        self.announce();
    }

    /// Ends a process that was not ready, or not gone, in time.
    fn overdue(&mut self, serial: u64) {
        self.set_deadline(serial, None);
        // Wherever a child hangs on its way: it will not execute its program any more.
        self.has_begun(serial);
        let Some(process) = self.processes.get(&serial) else { return };
        process.child.kill();
        let remedy = match process.stage {
            Stage::Starting => "; if its `init` needs longer, raise `start_timeout` in [limits]",
            _ => "",
        };
        let (title, stage) = (self.specs[process.slot].title(), process.stage.word());
        self.log.warning(format!(
            "{title} (pid {}) was {stage} for too long and was ended{remedy}",
            process.child.pid
        ));
    }

    /// Lets go of what has been read. How many bytes wait is all that is looked at.
    fn forget_read_logs(&mut self, now: Instant) {
        if now < self.next_unread_check || self.unread_logs.is_empty() {
            return;
        }
        self.next_unread_check = now + UNREAD_CHECK;
        self.unread_logs
            .retain(|(_, log, stderr)| log.as_ref().is_some_and(|log| !is_read(log)) || !is_read(stderr));
    }
}

fn is_read(descriptor: &impl AsFd) -> bool {
    rustix::io::ioctl_fionread(descriptor).is_ok_and(|waiting| waiting == 0)
}

/// The slots whose start is due, from `next` on: one that ends again and again does not keep the others waiting.
fn due_in_turns(starts: &BTreeMap<usize, Instant>, next: usize, now: Instant) -> Vec<usize> {
    let in_turns = starts.range(next..).chain(starts.range(..next));
    in_turns.filter(|(_, at)| **at <= now).map(|(slot, _)| *slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_due_have_their_turns() {
        let now = Instant::now();
        let starts = [(1, now), (5, now), (7, now + UNREAD_CHECK), (9, now)].into();
        let mut next = 0;
        let started: Vec<usize> = (0..4)
            .map(|_| {
                // It ends at once, and is due again.
                let slot = due_in_turns(&starts, next, now)[0];
                next = slot + 1;
                slot
            })
            .collect();
        assert_eq!(started, [1, 5, 9, 1]);
    }
}

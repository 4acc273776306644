//! Which processes were asked whether they are there, and which of them hang.
//!
//! Runs in: the launcher, as root. Sees: what the kernel says of processes. Never: takes one for hung that has had no
//! processor, or whose answer the launcher has not read yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use supervisor::Supervisor;
use supervisor::health_check::{HealthCheck, LOOK, Seen};
use supervisor::process::Stage;
use supervisor::whereabouts::Activity;

/// By the serial numbers of processes.
#[derive(Debug, Default)]
pub(super) struct HealthChecks {
    all: BTreeMap<u64, HealthCheck>,
    /// The same, the next one to be looked at first.
    timed: BTreeSet<(Instant, u64)>,
}

impl HealthChecks {
    /// Asks a process, unless it owes an answer; it has `patience` to answer.
    pub(super) fn ask(&mut self, supervisor: &mut Supervisor, serial: u64, patience: Duration, now: Instant) {
        let serves = supervisor.process(serial).is_some_and(|process| process.stage == Stage::Serving);
        if serves && !self.all.contains_key(&serial) {
            supervisor.ask_for_report(serial);
            let check = HealthCheck::new(now, patience);
            self.timed.insert((check.next, serial));
            self.all.insert(serial, check);
        }
    }

    /// It has answered, or is gone.
    pub(super) fn forget(&mut self, serial: u64) {
        if let Some(check) = self.all.remove(&serial) {
            self.timed.remove(&(check.next, serial));
        }
    }

    /// When a process is looked at next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timed.first().map(|(at, _)| *at)
    }

    /// The processes that hang, each with how long it has not answered. One that spins, or waits for a disk, has
    /// `hang_after`.
    pub(super) fn take_hung(
        &mut self,
        supervisor: &mut Supervisor,
        hang_after: Duration,
        now: Instant,
    ) -> Vec<(u64, Duration)> {
        let due: Vec<u64> = self.timed.range(..=(now, u64::MAX)).map(|(_, serial)| *serial).collect();
        let mut hung = Vec::new();
        for serial in due {
            let serving = supervisor.process(serial).filter(|process| process.stage == Stage::Serving);
            let seen = serving.and_then(|process| {
                Activity::of(process.child.pid)
                    .map(|activity| Seen { activity, is_behind: process.has_waiting() })
            });
            match self.look(serial, seen, hang_after, now) {
                Some(waited) => hung.push((serial, waited)),
                None => supervisor.remind_of_report(serial),
            }
        }
        hung
    }

    /// Looks at a process that is late; for how long, if it hangs.
    fn look(
        &mut self,
        serial: u64,
        seen: Option<Seen>,
        hang_after: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let check = self.all.get_mut(&serial)?;
        let is_hung = seen.map(|seen| check.is_hung(seen, hang_after, now));
        let (waited, before) = (now.duration_since(check.since), check.next);
        self.timed.remove(&(before, serial));
        if is_hung == Some(false) {
            check.next = now + LOOK;
            self.timed.insert((check.next, serial));
            return None;
        }
        self.all.remove(&serial);
        is_hung.map(|_| waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_looked_at_when_it_is_late_and_no_more_when_it_has_answered() {
        let (mut checks, now) = (HealthChecks::default(), Instant::now());
        for (serial, wait_ms) in [(1, 500), (2, 300)] {
            let check = HealthCheck::new(now, Duration::from_millis(wait_ms));
            checks.timed.insert((check.next, serial));
            checks.all.insert(serial, check);
        }
        assert_eq!(checks.deadline(), Some(now + Duration::from_millis(300)));
        checks.forget(2);
        assert_eq!(checks.deadline(), Some(now + Duration::from_millis(500)));
        let activity = Activity { state: 'T', has_run: Duration::ZERO, was_starved: Duration::ZERO };
        let stopped = Seen { activity, is_behind: false };
        let (late, hang_after) = (now + Duration::from_millis(600), Duration::from_secs(10));
        assert_eq!(checks.look(1, Some(stopped), hang_after, late), None);
        assert_eq!(checks.deadline(), Some(late + LOOK));
        let waited = Duration::from_millis(700);
        assert_eq!(checks.look(1, Some(stopped), hang_after, late + LOOK), Some(waited));
        assert_eq!((checks.deadline(), checks.all.len()), (None, 0));
    }
}

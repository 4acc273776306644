//! Which processes were asked whether they are there, and which of them hang.
//!
//! Runs in: the launcher, as root. Sees: what the kernel says of processes. Never: takes one for hung that has had no processor, or
//! whose answer the launcher has not read yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::whereabouts::Activity;
use supervisor::Supervisor;
use supervisor::process::Stage;

/// LIMIT: how long a process that is late is looked at: whether it runs, or could; and whether its answer is there.
const LOOK: Duration = Duration::from_millis(100);

/// One process that owes an answer.
#[derive(Debug)]
struct HealthCheck {
    since: Instant,
    /// What it did at the first look and at the last one, if it is late.
    looks: Option<(Activity, Activity)>,
    /// When the last one was.
    looked: Instant,
    /// When the next one is.
    next: Instant,
}

/// What is known of a process at a look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    activity: Activity,
    /// Whether it has yet to be sent what comes before the check.
    is_behind: bool,
}

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
            let next = now + patience;
            self.all.insert(serial, HealthCheck { since: now, looks: None, looked: now, next });
            self.timed.insert((next, serial));
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

    /// The processes that hang, each with how long it has not answered. One that spins, or waits for a disk, has `hang_after`.
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

impl HealthCheck {
    /// Whether a process that does this now, and has not answered, hangs. At the first look nobody knows.
    fn is_hung(&mut self, seen: Seen, hang_after: Duration, now: Instant) -> bool {
        let activity = seen.activity;
        let looked = std::mem::replace(&mut self.looked, now);
        let Some((first, before)) = self.looks else {
            self.looks = Some((activity, activity));
            return false;
        };
        self.looks = Some((first, activity));
        let time = now.duration_since(looked);
        let is_late = now.duration_since(self.since) >= hang_after;
        if activity.is_runnable(&before, time) {
            // It is starved, unless it has had a processor and was not done with what it does.
            let spins = activity.has_run_since(&before) >= time / 2;
            return is_late && (spins || activity.has_run_since(&first) >= hang_after / 2);
        }
        let reads = seen.is_behind && activity.has_run_since(&before) > Duration::ZERO;
        is_late || !(activity.waits_for_disk() || reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANG_AFTER: Duration = Duration::from_secs(10);

    fn activity(state: char, run_ms: u64, starved_ms: u64) -> Activity {
        let (has_run, was_starved) = (Duration::from_millis(run_ms), Duration::from_millis(starved_ms));
        Activity { state, has_run, was_starved }
    }

    /// Whether one hangs that has done `first` at the first look, and `then` at the second one, so long after the check.
    fn hangs(first: Activity, then: Activity, seconds: u64) -> bool {
        hangs_behind(first, then, seconds, false)
    }

    /// The same of one that has yet to be sent what comes before, or not.
    fn hangs_behind(first: Activity, then: Activity, seconds: u64, is_behind: bool) -> bool {
        let since = Instant::now();
        let mut check = HealthCheck { since, looks: None, looked: since, next: since };
        let now = since + Duration::from_secs(seconds);
        let seen = |activity| Seen { activity, is_behind };
        assert!(!check.is_hung(seen(first), HANG_AFTER, now), "at the first look nobody knows");
        check.is_hung(seen(then), HANG_AFTER, now + LOOK)
    }

    #[test]
    fn who_is_stopped_or_waits_hangs() {
        for state in ['T', 't', 'S'] {
            assert!(hangs(activity(state, 5, 5), activity(state, 5, 5), 1), "{state}");
        }
        // Woken from time to time, as one that waits for something again and again.
        assert!(hangs(activity('S', 5, 5), activity('S', 15, 15), 1));
    }

    #[test]
    fn who_is_starved_does_not_hang_however_long_that_takes() {
        for seconds in [1, 20, 1000] {
            assert!(!hangs(activity('R', 5, 5), activity('R', 5, 5), seconds));
            assert!(!hangs(activity('S', 5, 5), activity('S', 15, 65), seconds));
        }
    }

    #[test]
    fn who_reads_what_comes_before_the_question_does_not_hang_yet() {
        let (before, reads) = (activity('S', 5, 5), activity('S', 6, 5));
        assert!(!hangs_behind(before, reads, 1, true));
        assert!(hangs_behind(before, reads, 11, true));
        assert!(hangs_behind(before, before, 1, true), "it reads nothing");
    }

    #[test]
    fn who_spins_or_waits_for_a_disk_has_more_time() {
        assert!(!hangs(activity('R', 900, 0), activity('R', 1000, 0), 1));
        assert!(hangs(activity('R', 9000, 0), activity('R', 9100, 0), 11));
        // One that spins and is starved.
        assert!(hangs(activity('R', 9000, 0), activity('R', 14_000, 0), 11));
        assert!(!hangs(activity('D', 5, 5), activity('D', 5, 5), 1));
        assert!(hangs(activity('D', 5, 5), activity('D', 5, 5), 11));
    }

    #[test]
    fn what_is_asked_is_looked_at_when_it_is_late_and_no_more_when_it_has_answered() {
        let (mut checks, now) = (HealthChecks::default(), Instant::now());
        for (serial, wait_ms) in [(1, 500), (2, 300)] {
            let next = now + Duration::from_millis(wait_ms);
            checks.all.insert(serial, HealthCheck { since: now, looks: None, looked: now, next });
            checks.timed.insert((next, serial));
        }
        assert_eq!(checks.deadline(), Some(now + Duration::from_millis(300)));
        checks.forget(2);
        assert_eq!(checks.deadline(), Some(now + Duration::from_millis(500)));
        let stopped = Seen { activity: activity('T', 0, 0), is_behind: false };
        let late = now + Duration::from_millis(600);
        assert_eq!(checks.look(1, Some(stopped), HANG_AFTER, late), None);
        assert_eq!(checks.deadline(), Some(late + LOOK));
        let waited = Duration::from_millis(700);
        assert_eq!(checks.look(1, Some(stopped), HANG_AFTER, late + LOOK), Some(waited));
        assert_eq!((checks.deadline(), checks.all.len()), (None, 0));
    }
}

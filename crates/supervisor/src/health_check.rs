//! Whether a process that was asked whether it is there hangs, or is merely starved; and when gates are asked.
//!
//! Runs in: the launcher, as root, and the guard. Sees: what the kernel says of a process. Never: takes a process for
//! hung that has had no processor.

use std::time::{Duration, Instant};

use crate::whereabouts::Activity;

/// LIMIT: how long a process that is late is looked at: whether it runs, or could; and whether its answer is there.
pub const LOOK: Duration = Duration::from_millis(100);
/// LIMIT: how often a gate is asked while connections come, and how long it has to answer: with the time to look at it,
/// and for its successor to start, a connection in its accept queue waits little more than a second (TCP's own first
/// repetition).
const SHORT_PERIOD: Duration = Duration::from_millis(300);
/// See [`SHORT_PERIOD`].
pub const SHORT_PATIENCE: Duration = Duration::from_millis(400);
/// How long gates are asked after a connection has come, until the next one that comes is seen.
const ARRIVAL_LASTS: Duration = Duration::from_secs(2);

/// One process that owes an answer.
#[derive(Debug)]
pub struct HealthCheck {
    /// When it was asked.
    pub since: Instant,
    /// What it did at the first look and at the last one, if it is late.
    looks: Option<(Activity, Activity)>,
    /// When the last one was.
    looked: Instant,
    /// When the next one is.
    pub next: Instant,
}

/// What is known of a process at a look.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What it does.
    pub activity: Activity,
    /// Whether it has yet to be sent what comes before the check.
    pub is_behind: bool,
}

impl HealthCheck {
    /// Of a process that is asked now, and has `patience` to answer.
    pub fn new(now: Instant, patience: Duration) -> Self {
        Self { since: now, looks: None, looked: now, next: now + patience }
    }

    /// Whether a process that does this now, and has not answered, hangs. At the first look nobody knows. One that
    /// spins, or waits for a disk, has `hang_after`.
    pub fn is_hung(&mut self, seen: Seen, hang_after: Duration, now: Instant) -> bool {
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

/// When gates are asked: several times a second while connections come, as those in a gate's accept queue are served by
/// nobody else; and not at all while nobody comes.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// When gates are asked next, and until when, if connections have come.
    window: Option<(Instant, Instant)>,
}

/// What is to be done about gates now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalsDue {
    /// Nothing.
    Nothing,
    /// Gates are asked.
    Ask,
    /// No connection was seen lately: gates rest, and whoever listens says when the next connection comes.
    Rest,
}

impl Arrivals {
    /// A client has connected.
    pub fn on_arrival(&mut self, now: Instant) {
        let next = self.window.map_or(now, |(next, _)| next);
        self.window = Some((next, now + ARRIVAL_LASTS));
    }

    /// Whether nobody has come lately.
    pub fn rest(&self) -> bool {
        self.window.is_none()
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.window.map(|(next, _)| next)
    }

    /// What is due.
    pub fn due(&mut self, now: Instant) -> ArrivalsDue {
        let Some((next, until)) = self.window else { return ArrivalsDue::Nothing };
        if next > now {
            return ArrivalsDue::Nothing;
        }
        self.window = (now < until).then_some((now + SHORT_PERIOD, until));
        if self.rest() { ArrivalsDue::Rest } else { ArrivalsDue::Ask }
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

    /// Whether one hangs that has done `first` at the first look, and `then` at the second one, so long after the
    /// check.
    fn hangs(first: Activity, then: Activity, seconds: u64) -> bool {
        hangs_behind(first, then, seconds, false)
    }

    /// The same of one that has yet to be sent what comes before, or not.
    fn hangs_behind(first: Activity, then: Activity, seconds: u64, is_behind: bool) -> bool {
        let since = Instant::now();
        let mut check = HealthCheck::new(since, Duration::ZERO);
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
    fn gates_are_asked_while_connections_come() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        assert_eq!((arrivals.due(now), arrivals.deadline()), (ArrivalsDue::Nothing, None));
        arrivals.on_arrival(now);
        assert_eq!(arrivals.due(now), ArrivalsDue::Ask);
        assert_eq!(arrivals.due(now), ArrivalsDue::Nothing);
        let later = now + SHORT_PERIOD;
        assert_eq!((arrivals.deadline(), arrivals.due(later)), (Some(later), ArrivalsDue::Ask));
        // One more has come meanwhile.
        arrivals.on_arrival(later);
        assert_eq!(arrivals.due(now + ARRIVAL_LASTS), ArrivalsDue::Ask);
        assert_eq!(arrivals.due(later + ARRIVAL_LASTS), ArrivalsDue::Rest);
        assert!(arrivals.rest());
    }
}

//! When a process that ended is started again, and when it is given up as broken.
//!
//! Runs in: the launcher. Sees no untrusted bytes: exits of children and the clock, which the caller passes in.
//! Never: starts anything itself.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1 ("too many
//! times in a given interval": 30 in 50 s, with a delay of up to 3 s).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The rule: what `[restart]` of the configuration says.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// This many unclean exits ...
    pub broken_after: usize,
    /// ... in this time: broken.
    pub within: Duration,
    /// The longest delay before a start.
    pub backoff_max: Duration,
}

impl Rule {
    /// The rule of a configuration.
    pub fn of(restart: &config::Restart) -> Self {
        Self {
            broken_after: restart.broken_after as usize,
            within: Duration::from_millis(restart.within_ms.into()),
            backoff_max: Duration::from_millis(restart.backoff_max_ms.into()),
        }
    }
}

/// A process that lived this long was well; its next failure is the first again.
const HEALTHY: Duration = Duration::from_secs(1);
/// The delay after the second failure in a row; each further one doubles it.
const BACKOFF_FIRST: Duration = Duration::from_millis(10);

/// The past of one process.
#[derive(Debug, Default)]
pub struct Backoff {
    unclean: VecDeque<Instant>,
    failures_in_a_row: u32,
}

/// What to do about an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start it again after this delay.
    Restart(Duration),
    /// Give it up until somebody relaunches it or its program changes.
    Broken,
}

impl Backoff {
    /// A past that is known: how many failures there were in a row, and when it ended uncleanly.
    pub fn known(failures_in_a_row: u32, unclean: VecDeque<Instant>) -> Self {
        Self { unclean, failures_in_a_row }
    }

    /// How many failures there were in a row, and when it ended uncleanly: the last times, as many as a message has
    /// numbers.
    pub fn past(&self) -> (u32, impl Iterator<Item = Instant>) {
        let skipped = self.unclean.len().saturating_sub(wire::NUMBERS_MAX);
        (self.failures_in_a_row, self.unclean.iter().skip(skipped).copied())
    }

    /// Judges an exit at `now` of a process that had lived for `lived`.
    pub fn exited(&mut self, rule: &Rule, clean: bool, lived: Duration, now: Instant) -> Verdict {
        if !clean {
            self.unclean.push_back(now);
        }
        while self.unclean.front().is_some_and(|&first| now.duration_since(first) > rule.within) {
            self.unclean.pop_front();
        }
        if self.unclean.len() >= rule.broken_after {
            return Verdict::Broken;
        }
        self.failures_in_a_row = if lived >= HEALTHY { 1 } else { self.failures_in_a_row + 1 };
        Verdict::Restart(self.delay(rule))
    }

    /// How many unclean exits count.
    pub fn unclean(&self) -> usize {
        self.unclean.len()
    }

    /// Nothing after the first failure, so that a killed worker is back at once; then doubling. The delay stays
    /// below the pace at which a process that always fails still reaches `broken_after`.
    fn delay(&self, rule: &Rule) -> Duration {
        let Some(doublings) = self.failures_in_a_row.checked_sub(2) else {
            return Duration::ZERO;
        };
        let pace = rule.within / (rule.broken_after.max(1) as u32 + 1);
        (BACKOFF_FIRST * 2_u32.pow(doublings.min(16))).min(rule.backoff_max).min(pace)
    }

    /// Forgets everything: somebody relaunched it, or its program changed.
    pub fn forgive(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule =
        Rule { broken_after: 30, within: Duration::from_secs(50), backoff_max: Duration::from_secs(3) };

    #[test]
    fn the_first_failure_costs_no_delay() {
        let mut backoff = Backoff::default();
        let verdict = backoff.exited(&RULE, false, Duration::from_secs(5), Instant::now());
        assert_eq!(verdict, Verdict::Restart(Duration::ZERO));
    }

    #[test]
    fn a_crash_loop_is_throttled_and_ends_as_broken() {
        let (mut backoff, start, mut now) = (Backoff::default(), Instant::now(), Instant::now());
        let mut starts = 0;
        while let Verdict::Restart(delay) = backoff.exited(&RULE, false, Duration::ZERO, now) {
            now += delay;
            starts += 1;
            assert!(starts < 100, "it must be given up");
        }
        assert_eq!(starts, 29);
        let took = now - start;
        assert!(took > Duration::from_secs(20) && took < RULE.within, "took {took:?}");
    }

    #[test]
    fn clean_exits_never_break() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        for _ in 0..1000 {
            assert!(matches!(backoff.exited(&RULE, true, HEALTHY, now), Verdict::Restart(_)));
        }
    }

    #[test]
    fn old_exits_are_forgotten() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        for _ in 0..200 {
            assert!(matches!(backoff.exited(&RULE, false, HEALTHY, now), Verdict::Restart(_)));
            now += Duration::from_secs(2);
        }
    }
}

//! When the log files of another day are due, and what a day is called.
//!
//! Runs in: the launcher, as root. Sees: the clock. Never: reads a table of time zones.
//!
//! A day is one of UTC, as the times in the lines are: so a file has the lines of its name, there is one for each day
//! and none is longer or shorter than others.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::own_log::civil;

const DAY: u64 = 86_400;
/// How long the launcher sleeps at most while it waits for a day, so that a clock that was set is noticed; and after
/// how long it tries again what has failed.
const LOOK: Duration = Duration::from_secs(60);

/// When files of another day are to be opened.
#[derive(Clone, Debug)]
pub(super) struct Days {
    /// Whose files are open, counted from 1970-01-01.
    pub(super) day: u64,
    /// Not to be tried again before, as it has failed.
    not_before: Option<SystemTime>,
}

impl Days {
    /// The day whose files are open already.
    pub(super) fn of(day: u64) -> Self {
        Self { day, not_before: None }
    }

    pub(super) fn new(now: SystemTime) -> Self {
        Self::of(day_of(now))
    }

    /// Whether it is another day, and time to try; if that fails, it is due again after a while.
    pub(super) fn is_due(&mut self, now: SystemTime) -> bool {
        let waits =
            self.not_before.is_some_and(|at| now < at && at.duration_since(now).unwrap_or_default() <= LOOK);
        let due = day_of(now) != self.day && !waits;
        if due {
            self.not_before = Some(now + LOOK);
        }
        due
    }

    pub(super) fn pause(&self, now: SystemTime) -> Duration {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let midnight = Duration::from_secs((day_of(now) + 1) * DAY);
        midnight.saturating_sub(since).min(LOOK)
    }
}

fn day_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY
}

/// How the day is called in names of files.
pub(super) fn name_of(day: u64) -> String {
    let (year, month, day) = civil(day);
    format!("{year:04}{month:02}{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 00:00:00.
    const MIDNIGHT: u64 = 20_778 * DAY;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn days_have_names_that_sort() {
        assert_eq!(name_of(0), "19700101");
        assert_eq!(name_of(day_of(at(MIDNIGHT - 1))), "20261120");
        assert_eq!(name_of(day_of(at(MIDNIGHT))), "20261121");
        assert_eq!(name_of(11_016), "20000229");
    }

    #[test]
    fn files_are_due_at_midnight_and_not_before() {
        let mut days = Days::new(at(MIDNIGHT - 90));
        assert_eq!(days.pause(at(MIDNIGHT - 90)), LOOK);
        assert_eq!(days.pause(at(MIDNIGHT - 30)), Duration::from_secs(30));
        assert!(!days.is_due(at(MIDNIGHT - 1)));
        assert!(days.is_due(at(MIDNIGHT)));
        days = Days::new(at(MIDNIGHT));
        assert!(!days.is_due(at(MIDNIGHT)));
        assert!(!days.is_due(at(MIDNIGHT + DAY - 1)));
        assert!(days.is_due(at(MIDNIGHT + DAY)));
    }

    #[test]
    fn what_has_failed_is_tried_again_after_a_minute() {
        let mut days = Days::new(at(MIDNIGHT - 1));
        assert!(days.is_due(at(MIDNIGHT)));
        assert!(!days.is_due(at(MIDNIGHT + 59)));
        assert!(days.is_due(at(MIDNIGHT + 60)));
    }

    #[test]
    fn a_clock_that_is_set_is_followed_both_ways() {
        let mut days = Days::new(at(MIDNIGHT));
        assert!(days.is_due(at(MIDNIGHT - 5)));
        days = Days::new(at(MIDNIGHT - 5));
        assert!(days.is_due(at(MIDNIGHT + 400 * DAY)));
        // It failed, and the clock was set back far: that is no reason to wait for a year.
        assert!(days.is_due(at(MIDNIGHT + 3 * DAY)));
    }
}

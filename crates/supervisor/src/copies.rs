//! How long copies of the launcher have worked in the background: one that takes long may have waited for a processor
//! that tenants keep busy, and must not wait for ever.
//!
//! Runs in: the launcher, as root. Sees: the clock. Never: begins a copy, or ends one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::spawn::background::Background;

/// LIMIT: how long copies have little weight. What a tenant's file has a helper compute ends before, at its own limit.
const STEPS_BACK_FOR: Duration = Duration::from_secs(3);
/// LIMIT: how long a copy is thought to work; one that is still there waits for a file system.
const WORKS_FOR: Duration = Duration::from_secs(60);

/// The copies that work, by their serial numbers, and since when.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    since: BTreeMap<u64, Instant>,
    /// Whether they weigh as much as others.
    is_late: bool,
}

impl Copies {
    /// Notes that one has begun.
    pub(crate) fn begin(&mut self, serial: u64, now: Instant) {
        self.since.insert(serial, now);
    }

    /// Notes that one has ended, if it was one.
    pub(crate) fn end(&mut self, serial: u64) {
        self.since.remove(&serial);
    }

    /// Gives them the weight that is due to them.
    pub(crate) fn weigh(&mut self, background: &Background, now: Instant) {
        let is_late = self.is_late(now);
        if std::mem::replace(&mut self.is_late, is_late) != is_late {
            background.hurry(is_late);
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        self.since
            .values()
            .any(|since| (STEPS_BACK_FOR..WORKS_FOR).contains(&now.saturating_duration_since(*since)))
    }

    /// When their weight is to be looked at again.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.is_late != self.is_late(now) {
            return Some(now);
        }
        let ends = self.since.values().flat_map(|since| [*since + STEPS_BACK_FOR, *since + WORKS_FOR]);
        ends.filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_late_for_as_long_as_one_may_work() {
        let (now, mut copies) = (Instant::now(), Copies::default());
        assert_eq!((copies.is_late(now), copies.deadline(now)), (false, None));
        copies.begin(1, now);
        for (after, is_late) in [(0, false), (2_999, false), (3_000, true), (59_999, true), (60_000, false)] {
            assert_eq!(copies.is_late(now + Duration::from_millis(after)), is_late, "{after}");
        }
        assert_eq!(copies.deadline(now), Some(now + STEPS_BACK_FOR));
        let late = now + STEPS_BACK_FOR;
        assert_eq!(copies.deadline(late), Some(late));
        copies.is_late = true;
        assert_eq!(copies.deadline(late), Some(now + WORKS_FOR));
        assert_eq!(copies.deadline(now + WORKS_FOR), Some(now + WORKS_FOR));
        copies.end(1);
        assert_eq!(copies.deadline(late), Some(late));
        copies.is_late = false;
        assert_eq!(copies.deadline(late), None);
    }
}

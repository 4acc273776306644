//! How fast processes go that nobody needs: one after the other, the one that has been idle longest first.
//!
//! Runs in: the launcher, as root. Sees: when processes have ended. Never: keeps one back that goes for another reason,
//! as the end of the server, a reload or a successor are.
//!
//! The end of a jailed process costs the kernel some milliseconds: its memory, its mounts, its network namespace, its
//! control groups, most of it in the kernel's own threads, which take turns with those who serve. Where many wait, they
//! go so slowly that this is a small part of all time. Their memory is the price, and so they go quickly when memory is
//! short.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::memory::MemoryRoom;

/// How much longer than the end of one process the pause is that follows: an end takes longer while the processors are
/// busy, and the next one waits longer then.
const PAUSE_FACTOR: u32 = 9;
/// LIMIT: the shortest pause, which is the quickest pace.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// LIMIT: the longest pause of those that go quickly: ten processes a second.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// So many go quickly: what they take is over soon.
const FEW: usize = 32;
/// The longest pause of those that go slowly.
const PAUSE_SLOW: Duration = Duration::from_secs(1);
/// What is divided by how many wait, for a pause that is no longer than that: the more there are, the sooner the next
/// one goes.
const SLOWLY: Duration = Duration::from_secs(30 * 60);
/// LIMIT: how long the next one waits for one that goes and has been given a connection at the last moment.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Processes that nobody needs, in the order in which they go.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Those that wait, by their turns.
    waiting: BTreeMap<u64, u64>,
    /// The turn of each.
    turns: HashMap<u64, u64>,
    last_turn: u64,
    /// The one that goes, and since when.
    going: Option<(u64, Instant)>,
    /// When the next one may go.
    next: Option<Instant>,
}

impl Pace {
    /// Has a process wait for its turn; one that waits keeps its turn.
    pub(crate) fn wait(&mut self, serial: u64) {
        if !self.turns.contains_key(&serial) {
            self.last_turn += 1;
            self.turns.insert(serial, self.last_turn);
            self.waiting.insert(self.last_turn, serial);
        }
    }

    /// A process is needed again.
    pub(crate) fn stay(&mut self, serial: u64) {
        if let Some(turn) = self.turns.remove(&serial) {
            self.waiting.remove(&turn);
        }
    }

    /// A process has ended; how long that has taken, if it was its turn.
    pub(crate) fn gone(&mut self, serial: u64, now: Instant) -> Option<Duration> {
        self.stay(serial);
        let (_, since) = self.going.take_if(|(going, _)| *going == serial)?;
        Some(now.saturating_duration_since(since))
    }

    /// Has the next one wait after an end that has taken so long.
    pub(crate) fn pause(&mut self, took: Duration, room: MemoryRoom, now: Instant) {
        let quick = (took * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX);
        let pause = match self.waiting.len() {
            _ if room <= MemoryRoom::Scarce => PAUSE_MIN,
            waiting if waiting <= FEW || room == MemoryRoom::Short => quick,
            waiting => (SLOWLY / waiting as u32).clamp(quick, PAUSE_SLOW),
        };
        self.next = Some(now + pause);
    }

    /// Takes the process that is to go now, if one may.
    pub(crate) fn take(&mut self, now: Instant) -> Option<u64> {
        if self.may_go().is_some_and(|at| at > now) {
            return None;
        }
        let (_, serial) = self.waiting.pop_first()?;
        self.turns.remove(&serial);
        Some(serial)
    }

    /// How many wait for their turn.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a process waits for its turn.
    pub(crate) fn waits(&self, serial: u64) -> bool {
        self.turns.contains_key(&serial)
    }

    /// Whether a process goes, or is about to.
    pub(crate) fn is_under_way(&self) -> bool {
        self.going.is_some() || !self.waiting.is_empty()
    }

    /// One that was taken goes.
    pub(crate) fn goes(&mut self, serial: u64, now: Instant) {
        self.going = Some((serial, now));
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.turns.clear();
    }

    /// When there is something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let is_waiting = !self.waiting.is_empty();
        self.may_go().filter(|_| is_waiting)
    }

    /// Before when no other may go.
    fn may_go(&self) -> Option<Instant> {
        self.going.map(|(_, since)| since + GONE_WITHIN).or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One that has waited goes, and takes so long.
    fn end_one(pace: &mut Pace, now: &mut Instant, took: Duration) -> Option<u64> {
        let serial = pace.take(*now)?;
        pace.goes(serial, *now);
        *now += took;
        assert_eq!(pace.gone(serial, *now), Some(took));
        pace.pause(took, MemoryRoom::Ample, *now);
        Some(serial)
    }

    #[test]
    fn one_goes_after_the_other_in_the_order_in_which_they_were_idle() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        assert_eq!((pace.take(now), pace.deadline()), (None, None));
        [7, 3, 5, 3, 7].into_iter().for_each(|serial| pace.wait(serial));
        pace.stay(3);
        pace.wait(3);
        let mut gone = Vec::new();
        while let Some(serial) = end_one(&mut pace, &mut now, MS) {
            gone.push(serial);
            let at = pace.deadline();
            assert!(at.is_none_or(|at| at == now + PAUSE_MIN) && pace.take(now).is_none());
            now += PAUSE_MIN;
        }
        assert_eq!((gone, pace.deadline()), (vec![7, 5, 3], None));
    }

    #[test]
    fn the_pause_grows_with_the_time_that_an_end_takes_and_is_bounded() {
        for (took, pause) in [(MS / 2, PAUSE_MIN), (5 * MS, 45 * MS), (500 * MS, PAUSE_MAX)] {
            let (mut pace, mut now) = (Pace::default(), Instant::now());
            pace.wait(1);
            pace.wait(2);
            assert_eq!(end_one(&mut pace, &mut now, took), Some(1));
            assert_eq!(pace.deadline(), Some(now + pause));
            assert_eq!(pace.take(now + pause - MS / 2), None);
            assert_eq!(pace.take(now + pause), Some(2));
        }
    }

    #[test]
    fn many_go_slowly_unless_memory_is_short() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let pause = |pace: &mut Pace, room| {
            pace.pause(10 * MS, room, now);
            pace.deadline().unwrap() - now
        };
        (0..FEW as u64).for_each(|serial| pace.wait(serial));
        assert_eq!(pause(&mut pace, MemoryRoom::Ample), 90 * MS);
        pace.wait(FEW as u64);
        assert_eq!(
            (pause(&mut pace, MemoryRoom::Ample), pause(&mut pace, MemoryRoom::Short)),
            (PAUSE_SLOW, 90 * MS)
        );
        assert_eq!([MemoryRoom::Scarce, MemoryRoom::Full].map(|room| pause(&mut pace, room)), [PAUSE_MIN; 2]);
        (0..5_000).for_each(|serial| pace.wait(serial));
        assert_eq!(pause(&mut pace, MemoryRoom::Ample), 360 * MS);
        (0..90_000).for_each(|serial| pace.wait(serial));
        assert_eq!(pause(&mut pace, MemoryRoom::Ample), 90 * MS, "the pause of so many is the shortest");
    }

    #[test]
    fn one_that_does_not_end_keeps_the_others_for_a_second() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.wait(1);
        pace.wait(2);
        let first = pace.take(now).unwrap();
        pace.goes(first, now);
        assert_eq!((pace.take(now + GONE_WITHIN - MS), pace.deadline()), (None, Some(now + GONE_WITHIN)));
        assert_eq!(pace.take(now + GONE_WITHIN), Some(2));
        // Its end is nothing new then.
        pace.goes(2, now + GONE_WITHIN);
        assert_eq!(pace.gone(1, now + 2 * GONE_WITHIN), None);
        assert_eq!(pace.take(now + GONE_WITHIN), None);
        pace.wait(3);
        pace.clear();
        assert_eq!((pace.take(now + 10 * GONE_WITHIN), pace.deadline()), (None, None));
    }

    #[test]
    fn thousands_cost_no_more_each_than_a_few() {
        let mut pace = Pace::default();
        (0..100_000).for_each(|serial| pace.wait(serial));
        (0..100_000).step_by(2).for_each(|serial| pace.stay(serial));
        let mut now = Instant::now();
        for serial in (1..100_000).step_by(2) {
            assert_eq!(end_one(&mut pace, &mut now, Duration::ZERO), Some(serial));
            now += PAUSE_SLOW;
        }
    }
}

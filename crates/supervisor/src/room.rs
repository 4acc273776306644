//! Slots whose processes wait for room: who is next, and for what each waits.
//!
//! Runs in: the launcher, as root. Sees: the clock. Never: starts a process, or lets one that fails again and again
//! keep the others from their turns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::limits::Lack;

/// LIMIT: how often it is looked whether there is room, while somebody waits.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a slot waits whose start the kernel has refused, after the first time; twice as long each further time.
const REFUSED_FIRST: Duration = Duration::from_millis(100);
/// LIMIT: how long at the most.
const REFUSED_MAX: Duration = Duration::from_secs(2);
/// LIMIT: how often the log says that something waits.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Where a slot stands: roles come before sites, and each after those that wait already.
type Turn = (bool, u64);

/// The slots that wait.
#[derive(Debug, Default)]
pub(crate) struct RoomQueue {
    waiting: BTreeMap<usize, Waiting>,
    order: BTreeMap<Turn, usize>,
    last_turn: u64,
    /// How often the kernel has refused the starts of slots that have not come up since.
    refusals: BTreeMap<usize, u32>,
    next_look: Option<Instant>,
    /// When the log has said last that something waits.
    said: Option<Instant>,
    /// Whether it has said so since nothing did.
    is_known: bool,
}

#[derive(Debug)]
struct Waiting {
    turn: Turn,
    lack: Lack,
    /// Before when it is not tried.
    not_before: Instant,
}

impl RoomQueue {
    /// Has a slot wait, one of a role before those of sites.
    pub(crate) fn wait(&mut self, slot: usize, is_role: bool, lack: Lack, now: Instant) {
        self.insert(slot, is_role, lack, now, now);
    }

    /// The same of one whose start the kernel has refused.
    pub(crate) fn refused(&mut self, slot: usize, is_role: bool, lack: Lack, now: Instant) {
        let times = self.refusals.entry(slot).or_default();
        let pause = (REFUSED_FIRST * 2_u32.pow((*times).min(16))).min(REFUSED_MAX);
        *times += 1;
        self.insert(slot, is_role, lack, now, now + pause);
    }

    fn insert(&mut self, slot: usize, is_role: bool, lack: Lack, now: Instant, not_before: Instant) {
        self.leave(slot);
        self.last_turn += 1;
        let turn = (!is_role, self.last_turn);
        self.order.insert(turn, slot);
        self.waiting.insert(slot, Waiting { turn, lack, not_before });
        self.next_look.get_or_insert(now + LOOK_EVERY);
    }

    /// Takes a slot out whose start is tried.
    pub(crate) fn leave(&mut self, slot: usize) {
        if let Some(Waiting { turn, .. }) = self.waiting.remove(&slot) {
            self.order.remove(&turn);
        }
    }

    /// A process of a slot has come up, or the slot is nobody's any more.
    pub(crate) fn forget(&mut self, slot: usize) {
        self.leave(slot);
        self.refusals.remove(&slot);
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// For what a slot waits.
    pub(crate) fn lack_of(&self, slot: usize) -> Option<Lack> {
        self.waiting.get(&slot).map(|waiting| waiting.lack)
    }

    /// The slots that wait.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        self.waiting.keys().copied()
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// The first slot that may be tried.
    pub(crate) fn next(&self, now: Instant) -> Option<usize> {
        self.order
            .values()
            .copied()
            .find(|slot| self.waiting.get(slot).is_some_and(|of| of.not_before <= now))
    }

    /// Whether it is time to look whether there is room.
    pub(crate) fn is_look_due(&mut self, now: Instant) -> bool {
        let is_due = self.next_look.is_some_and(|next| next <= now);
        if is_due {
            self.next_look = Some(now + LOOK_EVERY).filter(|_| !self.waiting.is_empty());
        }
        is_due
    }

    /// When it is.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next_look.filter(|_| !self.waiting.is_empty())
    }

    /// Whether the log is to say that something waits.
    pub(crate) fn is_said(&mut self, now: Instant) -> bool {
        let is_said = self.said.is_none_or(|said| now.saturating_duration_since(said) >= SAID_EVERY);
        if is_said {
            (self.said, self.is_known) = (Some(now), true);
        }
        is_said
    }

    /// Whether nothing waits any more, once after the log has said that something does.
    pub(crate) fn is_over(&mut self) -> bool {
        self.waiting.is_empty() && std::mem::take(&mut self.is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn roles_come_first_and_sites_in_the_order_in_which_they_began_to_wait() {
        let (mut room, now) = (RoomQueue::default(), Instant::now());
        assert_eq!((room.next(now), room.deadline()), (None, None));
        room.wait(7, false, Lack::Processes, now);
        room.wait(3, false, Lack::Memory, now);
        room.refused(1, true, Lack::Descriptors, now);
        assert_eq!((room.count(), room.lack_of(3), room.lack_of(4)), (3, Some(Lack::Memory), None));
        assert_eq!(room.next(now), Some(7), "that of the role was refused a moment ago");
        assert_eq!(room.next(now + REFUSED_FIRST), Some(1));
        room.leave(1);
        room.leave(7);
        assert_eq!(room.next(now), Some(3));
        room.wait(7, false, Lack::Processes, now);
        assert_eq!(room.next(now), Some(3), "one that is tried in vain goes behind the others");
        assert_eq!(room.slots().collect::<Vec<_>>(), [3, 7]);
        room.forget(3);
        room.forget(7);
        assert_eq!((room.next(now), room.deadline()), (None, None));
    }

    #[test]
    fn one_that_is_refused_again_and_again_waits_longer_each_time_up_to_a_limit() {
        let (mut room, now) = (RoomQueue::default(), Instant::now());
        for pause in [100, 200, 400, 800, 1600, 2000, 2000] {
            room.refused(1, false, Lack::Processes, now);
            assert_eq!(room.next(now + MS * pause - MS), None);
            assert_eq!(room.next(now + MS * pause), Some(1));
            room.leave(1);
        }
        room.forget(1);
        room.refused(1, false, Lack::Processes, now);
        assert_eq!(room.next(now + REFUSED_FIRST), Some(1), "it has come up since");
    }

    #[test]
    fn it_is_looked_and_said_no_more_often_than_the_limits() {
        let (mut room, now) = (RoomQueue::default(), Instant::now());
        assert!(!room.is_look_due(now) && room.is_said(now) && !room.is_said(now + SAID_EVERY - MS));
        assert!(room.is_said(now + SAID_EVERY) && room.is_over() && !room.is_over());
        room.wait(1, false, Lack::Processes, now);
        assert!(!room.is_look_due(now + LOOK_EVERY - MS) && room.is_look_due(now + LOOK_EVERY));
        assert_eq!(room.deadline(), Some(now + 2 * LOOK_EVERY));
        room.leave(1);
        assert!(room.is_look_due(now + 2 * LOOK_EVERY) && room.deadline().is_none());
        room.wait(2, false, Lack::Processes, now + 3 * LOOK_EVERY);
        assert_eq!(room.deadline(), Some(now + 4 * LOOK_EVERY));
        room.clear();
        assert_eq!((room.count(), room.deadline()), (0, None));
    }
}

//! Which worker of a partition gets what comes, and whether all of them have too much to do.
//!
//! Runs in: gates and site workers. Sees: what workers say, which may be compromised. Never: believes one that says it
//! has nothing to do: what counts is what this process has sent it, and what of that has not ended.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Dispatcher;
use super::destination::Destination;

/// LIMIT: how long a worker may say nothing after a connection was sent to it, or a connection may wait for room,
/// before another worker is wanted. A worker answers at the end of each turn of its loop, which takes some tens of
/// milliseconds with thousands of busy connections; one that takes longer is kept from its work by something, or has
/// more than it can do.
const BUSY_TIME: Duration = Duration::from_millis(100);
/// How often another worker is asked for as long as that lasts: one that is started needs a moment.
const WANTED_EVERY: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// The worker with the least to do of those that have room, but for those of `without`, and how many of `count`
    /// connections are for it: as many as even it out with the next one, and no fewer than its part. Those that keep up
    /// come before those that do not, and of equal ones the newest is the first: during a relaunch the successor gets
    /// the work as soon as it can take it.
    pub(super) fn next_destination(
        &self,
        count: usize,
        without: &[Rc<Destination>],
    ) -> Option<(Rc<Destination>, usize)> {
        let (held_max, destinations) = (self.held_max(), self.destinations.borrow());
        // Most partitions have one worker.
        if let [only] = &destinations[..] {
            let room = if without.is_empty() { only.room(held_max) } else { 0 };
            return (room > 0).then(|| (only.clone(), room.min(count)));
        }
        let before = self.late_before();
        let (mut best, mut next, mut others) = (None, None, 0);
        for destination in destinations.iter() {
            let room = destination.room(held_max);
            if room == 0 || without.iter().any(|other| Rc::ptr_eq(other, destination)) {
                continue;
            }
            others += 1;
            let load = (destination.is_late(before), destination.held());
            match best {
                Some((least, _, _)) if least <= load => next = next.into_iter().chain([load]).min(),
                _ => next = best.replace((load, destination, room)).map(|(load, _, _)| load),
            }
        }
        let ((is_late, held), destination, room): ((bool, usize), &Rc<Destination>, usize) = best?;
        let even = match next {
            Some((late, more)) if late == is_late => more.saturating_sub(held).max(count.div_ceil(others)),
            _ => count,
        };
        Some((destination.clone(), room.min(even).min(count)))
    }

    /// Whether something waits for a worker, and each has all that it was sent and asks for no more, or does not say.
    /// While the word of one is under way, what waits does so for that and not for a place.
    pub fn is_full(&self) -> bool {
        if self.queue.borrow().is_empty() {
            return false;
        }
        let before = self.late_before();
        let is_awaited =
            |one: &Rc<Destination>| !one.is_draining() && one.owes_word() && !one.is_late(before);
        !self.destinations.borrow().iter().any(is_awaited)
    }

    /// Has the owner know it.
    pub(super) fn note_full(&self) {
        if self.is_full() {
            self.owner.full(self.queue.borrow().len());
        }
    }

    /// Tells the owner how many workers take connections.
    pub(super) fn count_workers(&self) {
        let takes = |destination: &&Rc<Destination>| !destination.is_draining();
        let count = self.destinations.borrow().iter().filter(takes).count();
        self.owner.workers_changed(count);
    }

    /// Has somebody look after a while whether the workers keep up.
    pub(super) fn watch_load(self: &Rc<Self>) {
        if self.is_waiting() && !self.watching.replace(true) {
            tokio::task::spawn_local(self.clone().watch());
        }
    }

    /// Asks for another worker while none keeps up; until nothing waits, neither here nor for the word of a worker.
    async fn watch(self: Rc<Self>) {
        let mut pause = BUSY_TIME;
        while self.is_waiting() {
            tokio::time::sleep(pause).await;
            pause = BUSY_TIME;
            if self.is_overloaded() {
                self.owner.wanted();
                pause = WANTED_EVERY;
            }
        }
        self.watching.set(false);
    }

    fn is_waiting(&self) -> bool {
        let owes = || self.destinations.borrow().iter().any(|destination| destination.owes_word());
        owes() || !self.queue.borrow().is_empty()
    }

    /// Whether no worker keeps up.
    fn is_overloaded(&self) -> bool {
        let before = self.late_before();
        // Nobody waits for longer than this.
        let first = self.queue.borrow_mut().next_deadline().and_then(|at| at.checked_sub(self.wait_max));
        let destinations = self.destinations.borrow();
        let takes = |one: &&Rc<Destination>| one.has_credits() && !one.is_draining();
        let mut workers = destinations.iter().filter(takes).peekable();
        let are_there = workers.peek().is_some();
        are_there && (first.is_some_and(|since| since <= before) || workers.all(|one| one.is_late(before)))
    }

    /// Bundles that were sent before this time, and not acknowledged, are late.
    fn late_before(&self) -> Instant {
        let now = Instant::now();
        now.checked_sub(BUSY_TIME).unwrap_or(now)
    }
}

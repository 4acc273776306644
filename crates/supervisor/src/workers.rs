//! Partitions with several processes: how many there are at a time.
//!
//! Runs in: the launcher, as root. Sees: numbers of partitions, which gates and sites say. Never: starts more than the
//! configuration allows, or several at once for the work of one moment.
//!
//! A partition has a slot for each of the most processes that it may have; those beyond what there is work for rest, as
//! the slots of a site that starts on demand do. Gates and sites say `Wanted` again when none of the workers keeps up.

use std::time::Duration;

use crate::process::Stage;
use crate::{Slot, Supervisor};

/// LIMIT: how long after a start another process of the partition may be started: the new one is to have taken its part
/// of the work before it is judged whether that was enough.
const GROWTH_PAUSE: Duration = Duration::from_secs(1);

impl Supervisor {
    /// The slots of the processes that share the work of this one's, itself included, by their numbers.
    pub fn workers_beside(&self, slot: usize) -> Vec<usize> {
        let spec = &self.specs[slot];
        if !spec.role.is_worker() {
            return vec![slot];
        }
        let of_partition = self.lookup().of_partition(spec.partition).iter().copied();
        of_partition.filter(|&other| self.specs[other].role == spec.role).collect()
    }

    /// Has processes of a partition started: the least that it has, if it has none that works; or else one more, if all
    /// of them have been there for a while.
    pub(crate) fn wake_workers(&mut self, slot: usize) {
        let all = self.workers_beside(slot);
        let (resting, others): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|&at| self.slots[at].rests);
        let works = |slot: &&usize| self.slots[**slot].broken.is_none();
        let count = match others.iter().any(|slot| works(&slot)) {
            false => self.context.messages().workers(&self.specs[slot]).min.into(),
            true => usize::from(others.iter().filter(works).all(|&slot| self.has_settled(slot))),
        };
        for &slot in resting.iter().take(count) {
            if !others.is_empty() {
                self.log.info(format!(
                    "{} is started: the processes beside it do not keep up",
                    self.specs[slot].title()
                ));
            }
            self.wake(slot);
        }
    }

    /// Whether the process of a slot serves and has done so for long enough to be judged.
    fn has_settled(&self, slot: usize) -> bool {
        let process = self.slots[slot].current.and_then(|serial| self.processes.get(&serial));
        process.is_some_and(|one| one.stage == Stage::Serving && one.since.elapsed() >= GROWTH_PAUSE)
    }

    /// Whether the process of a slot may go if it has nothing to do.
    pub(crate) fn may_go(&self, slot: usize) -> bool {
        let serves = |slot: &usize| {
            let process = self.slots[*slot].current.and_then(|serial| self.processes.get(&serial));
            process.is_some_and(|one| one.stage == Stage::Serving)
        };
        let serving = self.workers_beside(slot).into_iter().filter(serves).count();
        self.is_on_demand(slot) || serving > self.context.messages().workers(&self.specs[slot]).min.into()
    }

    /// Those of some slots that a relaunch is about: those that have a process or are to have one, and of a partition
    /// that rests the least that it has.
    pub fn relaunched(&self, slots: &[usize]) -> Vec<usize> {
        let rests = |slot: usize| self.slots[slot].rests;
        let is_one = |slot: &usize| {
            let all_rest = || self.workers_beside(*slot).into_iter().all(rests);
            let spec = &self.specs[*slot];
            !rests(*slot) || spec.worker < self.context.messages().workers(spec).min && all_rest()
        };
        slots.iter().copied().filter(is_one).collect()
    }

    /// Whether no process of a slot's partition works, and one of them was given up.
    pub fn is_partition_broken(&self, slot: usize) -> bool {
        let workers = self.workers_beside(slot);
        let is_broken = |state: &Slot| state.broken.is_some();
        workers.iter().any(|&slot| is_broken(&self.slots[slot]))
            && workers.iter().all(|&slot| is_broken(&self.slots[slot]) || self.slots[slot].rests)
    }

    /// Whether a slot has nothing to say of itself: it rests, and another one stands for its partition.
    pub fn is_vacant(&self, slot: usize) -> bool {
        let others = self.workers_beside(slot);
        self.slots[slot].rests
            && (self.specs[slot].worker > 0 || others.into_iter().any(|other| !self.slots[other].rests))
    }
}

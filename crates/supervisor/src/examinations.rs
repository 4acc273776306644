//! The examinations of programs that are under way beside the loop, and those that have ended.
//!
//! Runs in: the launcher, as root. Sees: nothing of what is examined. Never: begins one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Instant;

use crate::leaving::Leaving;
use crate::spawn::examination::Examination;

/// LIMIT: examinations at a time, each a copy of this process; those that take too long are not among them. A machine
/// has few processors, and each examination keeps one busy.
const RUNNING_MAX: usize = 16;

/// The examinations of a server.
#[derive(Debug, Default)]
pub(crate) struct Examinations {
    /// Those that are under way, by their slots.
    running: BTreeMap<usize, Running>,
    /// The slots of those that are to begin when others have ended.
    waiting: VecDeque<usize>,
    /// The slots of those that have ended, until a process is started.
    ended: BTreeSet<usize>,
    /// Processes that examine for nobody any more and were killed, by their serial numbers, until they have gone.
    leaving: Leaving<usize>,
    /// What has become of slots, until the launcher takes notice.
    news: VecDeque<(usize, News)>,
}

/// One that is under way.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) serial: u64,
    pub(crate) examination: Examination,
    pub(crate) deadline: Instant,
}

/// What has become of a slot whose program is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its examination has ended.
    Ended,
    /// Its examination can begin now.
    Room,
    /// A file system that it needs does not answer.
    Silent,
}

impl Examinations {
    pub(crate) fn is_running(&self, slot: usize) -> bool {
        self.running.contains_key(&slot) || self.waiting.contains(&slot)
    }

    pub(crate) fn has_ended(&self, slot: usize) -> bool {
        self.ended.contains(&slot)
    }

    /// The slots whose programs are being examined, and these programs.
    pub(crate) fn examined(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.running.iter().map(|(slot, running)| (*slot, running.examination.path()))
    }

    /// Whether one that had to be killed has yet to go: no other is begun for its slot.
    pub(crate) fn is_leaving(&self, slot: usize) -> bool {
        self.leaving.each().any(|of| *of == slot)
    }

    /// Whether none is there that is waited for.
    pub(crate) fn are_over(&self, now: Instant) -> bool {
        self.running.is_empty() && !self.leaving.is_waited_for(now)
    }

    /// Whether as many are under way as may be.
    pub(crate) fn are_full(&self) -> bool {
        self.running.len() >= RUNNING_MAX
    }

    /// Has a slot wait until there is room, or nobody else has its program.
    pub(crate) fn wait(&mut self, slot: usize) {
        self.waiting.push_back(slot);
    }

    pub(crate) fn begin(&mut self, slot: usize, running: Running) {
        self.running.insert(slot, running);
    }

    /// The one with this serial number, and its slot.
    pub(crate) fn of_serial(&self, serial: u64) -> Option<(usize, &Running)> {
        let found = self.running.iter().find(|(_, running)| running.serial == serial);
        found.map(|(slot, running)| (*slot, running))
    }

    /// Takes one out that has ended.
    pub(crate) fn end(&mut self, slot: usize) -> Option<Examination> {
        let running = self.running.remove(&slot)?;
        self.ended.insert(slot);
        self.news.push_back((slot, News::Ended));
        self.make_room();
        Some(running.examination)
    }

    /// When the next one has taken too long.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.values().map(|running| running.deadline).min()
    }

    /// Ends those that take too long.
    pub(crate) fn end_late(&mut self, now: Instant) {
        let late = self.running.iter().filter(|(_, running)| running.deadline <= now);
        for slot in late.map(|(slot, _)| *slot).collect::<Vec<_>>() {
            self.kill(slot);
            self.ended.insert(slot);
            self.news.push_back((slot, News::Ended));
        }
    }

    /// Ends all, as this process gives way; returns their slots.
    pub(crate) fn end_all(&mut self) -> Vec<usize> {
        let slots: Vec<usize> = self.running.keys().copied().collect();
        slots.iter().for_each(|&slot| self.kill(slot));
        slots
    }

    /// Forgets a slot that is nobody's any more.
    pub(crate) fn forget(&mut self, slot: usize) {
        self.kill(slot);
        self.waiting.retain(|waiting| *waiting != slot);
        self.ended.remove(&slot);
        self.news.retain(|(of, _)| *of != slot);
        // Whose slot it is next must not wait for it.
        self.leaving.each_mut().filter(|of| **of == slot).for_each(|of| *of = usize::MAX);
    }

    /// A process of a slot is started: what was found out is used up.
    pub(crate) fn use_up(&mut self, slot: usize) {
        self.ended.remove(&slot);
    }

    /// SECURITY: a file of a file system that does not answer cannot be given up; whoever reads it stays until it
    /// answers, and nobody waits for that.
    fn kill(&mut self, slot: usize) {
        if let Some(Running { serial, examination, .. }) = self.running.remove(&slot) {
            self.leaving.kill(serial, slot, examination.child);
            self.make_room();
        }
    }

    /// Others may wait for the program that has become free, or for another.
    pub(crate) fn make_room(&mut self) {
        self.news.extend(self.waiting.drain(..).map(|slot| (slot, News::Room)));
    }

    /// Lets go of a process that was killed and has gone; whether `serial` is such a one.
    pub(crate) fn reap(&mut self, serial: u64) -> bool {
        self.leaving.reap(serial)
    }

    /// Notes what has become of a slot.
    pub(crate) fn tell(&mut self, slot: usize, news: News) {
        self.news.push_back((slot, news));
    }

    /// Whether something has become of slots that nobody has taken notice of.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// What has become of a slot, once.
    pub(crate) fn next_news(&mut self) -> Option<(usize, News)> {
        self.news.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_examine_than_the_limit_and_others_have_their_turn() {
        let mut all = Examinations::default();
        let begin = |all: &mut Examinations, slot: usize, deadline| {
            assert!(!all.are_full());
            let examination = Examination::of_sleeper(format!("/{slot}").into());
            all.begin(slot, Running { serial: slot as u64, examination, deadline });
        };
        let news = |all: &mut Examinations| std::iter::from_fn(|| all.next_news()).collect::<Vec<_>>();
        let now = Instant::now();
        let later = now + std::time::Duration::from_secs(60);
        (0..RUNNING_MAX).for_each(|slot| begin(&mut all, slot, later));
        assert!(all.are_full() && all.examined().any(|(slot, path)| (slot, path) == (3, Path::new("/3"))));
        all.wait(100);
        all.wait(101);
        assert!(all.is_running(100));
        assert!(all.end(3).is_some());
        assert_eq!(news(&mut all), [(3, News::Ended), (100, News::Room), (101, News::Room)]);
        assert!(all.has_ended(3) && !all.is_running(100));
        begin(&mut all, 100, now);
        all.wait(101);
        // One that takes too long gives its place to the next, though it may not have gone.
        all.end_late(now);
        assert_eq!(news(&mut all), [(101, News::Room), (100, News::Ended)]);
        assert!(all.is_leaving(100) && !all.is_running(100) && all.has_ended(100));
        // Nobody hears any more of a slot that has gone.
        all.forget(100);
        assert!(!all.is_leaving(100) && !all.has_ended(100));
        assert_eq!(all.end_all().len(), RUNNING_MAX - 1);
        let is_there = |all: &Examinations| !all.running.is_empty() || all.leaving.each().next().is_some();
        while is_there(&all) {
            (0..=100).filter(|&serial| all.reap(serial)).count();
            std::thread::yield_now();
        }
    }
}

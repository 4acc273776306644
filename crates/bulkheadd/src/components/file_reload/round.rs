//! A round over files, a portion in each turn of the launcher's loop: there may be tens of thousands, and the loop has
//! more to do.
//!
//! Runs in: the launcher, as root. Sees: no input. Never: begins again at the first file while it goes on, or whoever
//! has rounds begun all the time would keep the last ones from ever being looked at.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use supervisor::opened_files::FileKey;

/// LIMIT: files that are looked at in one turn of the loop, or those of one row: some milliseconds, on a machine with
/// time to spare.
const AT_ONCE: usize = 256;
/// LIMIT: how long a round rests after a portion, in times of what the portion has taken: a round has at most a quarter
/// of the loop, which clients and changes wait for, whatever is on the way to a file.
const REST_TIMES: u32 = 3;

/// LIMIT: how long a portion waits for a change of the configuration that begins, and for others after it.
const PUT_OFF: Duration = Duration::from_millis(200);
const PUT_OFF_MAX: Duration = Duration::from_secs(2);

/// Where a round is.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The next row.
    at: usize,
    /// How many have yet to be looked at.
    left: usize,
    /// When the next portion is due, while the round goes on.
    due: Option<Instant>,
    /// Since when that has been put off.
    put_off_at: Option<Instant>,
    /// Whether it was begun because it was time.
    is_by_time: bool,
    /// What was looked at and is opened by others.
    pub(super) looked: BTreeSet<FileKey>,
}

impl Round {
    /// Has all files of so many rows looked at, from where the last round is or was.
    pub(super) fn begin(&mut self, rows: usize, is_by_time: bool, now: Instant) {
        self.left = rows;
        // One that goes on rests as it would have.
        self.due = Some(self.due.unwrap_or(now)).filter(|_| rows > 0);
        self.is_by_time |= is_by_time;
    }

    /// There are other files now. A round that goes on looks at all of them.
    pub(super) fn adopt(&mut self, rows: usize) {
        if self.left > 0 {
            self.left = rows;
        }
        self.due = self.due.filter(|_| rows > 0);
    }

    /// When the next portion is due, if there is one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Has the next portion wait for a change that begins now, unless it has waited for others for long.
    pub(super) fn put_off(&mut self, now: Instant) {
        let Some(due) = self.due else { return };
        if now.duration_since(*self.put_off_at.get_or_insert(now)) < PUT_OFF_MAX {
            self.due = Some(due.max(now + PUT_OFF));
        }
    }

    /// A portion has taken so long.
    pub(super) fn rest(&mut self, took: Duration, now: Instant) {
        self.put_off_at = None;
        self.due = self.due.map(|_| now + took * REST_TIMES);
    }

    /// The next portion of so many rows; none when the round is over. `len` says how many files a row has.
    pub(super) fn next(&mut self, rows: usize, len: impl Fn(usize) -> usize) -> Range<usize> {
        if self.at >= rows {
            self.at = 0;
        }
        let most = self.at + self.left.min(rows - self.at);
        let (mut end, mut files) = (self.at, 0);
        while end < most {
            files += len(end);
            if files > AT_ONCE && end > self.at {
                break;
            }
            end += 1;
        }
        let portion = self.at..end;
        self.left -= portion.len();
        self.at = end;
        if self.left == 0 {
            self.due = None;
        }
        portion
    }

    /// What was looked at and is opened by others, once the last portion was the end of a round that was begun because
    /// it was time.
    pub(super) fn take_looked(&mut self) -> Option<BTreeSet<FileKey>> {
        if self.due.is_some() {
            return None;
        }
        let Self { is_by_time, looked, .. } = std::mem::take(self);
        is_by_time.then_some(looked)
    }

    /// Makes an end of it.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of so many files is looked at until the round is over, `begin` being called before these portions
    /// as well.
    fn looks(round: &mut Round, files: usize, begins: &[usize]) -> Vec<usize> {
        let (mut looks, mut portions) = (vec![0; files], 0);
        while round.deadline().is_some() {
            if begins.contains(&portions) {
                round.begin(files, false, Instant::now());
            }
            let portion = round.next(files, |_| 1);
            assert!(portion.len() <= AT_ONCE);
            portion.for_each(|at| looks[at] += 1);
            portions += 1;
            assert!(portions < 100, "it does not end");
        }
        looks
    }

    #[test]
    fn a_round_looks_at_each_file_once() {
        for files in [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE + 3] {
            let mut round = Round::default();
            for _ in 0..3 {
                round.begin(files, false, Instant::now());
                assert_eq!(looks(&mut round, files, &[]), vec![1; files], "{files}");
            }
        }
    }

    #[test]
    fn a_round_that_is_begun_again_all_the_time_comes_to_the_last_file() {
        let (files, mut round) = (5 * AT_ONCE, Round::default());
        round.begin(files, false, Instant::now());
        let looks = looks(&mut round, files, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(looks.iter().all(|looks| (1..=3).contains(looks)), "{looks:?}");
    }

    #[test]
    fn a_round_rests_after_each_portion_whoever_begins_it_again() {
        let (files, mut round, now) = (3 * AT_ONCE, Round::default(), Instant::now());
        let took = Duration::from_millis(4);
        round.begin(files, false, now);
        assert_eq!(round.deadline(), Some(now));
        round.next(files, |_| 1);
        round.rest(took, now);
        assert_eq!(round.deadline(), Some(now + took * REST_TIMES));
        round.begin(files, true, now);
        assert_eq!(round.deadline(), Some(now + took * REST_TIMES));
        while !round.next(files, |_| 1).is_empty() {}
        round.rest(took, now);
        assert_eq!(round.deadline(), None, "it is over");
    }

    #[test]
    fn a_round_waits_for_changes_and_not_for_ever() {
        let (files, mut round, begun) = (3 * AT_ONCE, Round::default(), Instant::now());
        round.put_off(begun);
        assert_eq!(round.deadline(), None, "there is none");
        round.begin(files, false, begun);
        let (mut now, mut changes) = (begun, 0);
        loop {
            round.put_off(now);
            if round.deadline().is_some_and(|due| due <= now) {
                break;
            }
            (now, changes) = (now + PUT_OFF, changes + 1);
        }
        assert_eq!(now, begun + PUT_OFF_MAX, "after {changes} changes");
        round.next(files, |_| 1);
        round.rest(Duration::ZERO, now);
        round.put_off(now);
        assert_eq!(round.deadline(), Some(now + PUT_OFF));
    }

    #[test]
    fn fewer_files_end_it_and_more_are_looked_at() {
        let mut round = Round::default();
        round.begin(10 * AT_ONCE, false, Instant::now());
        (0..5).for_each(|_| assert_eq!(round.next(10 * AT_ONCE, |_| 1).len(), AT_ONCE));
        round.adopt(AT_ONCE + 1);
        assert_eq!(looks(&mut round, AT_ONCE + 1, &[]), vec![1; AT_ONCE + 1]);
        round.begin(1, false, Instant::now());
        round.adopt(0);
        assert_eq!((round.deadline(), round.next(0, |_| 1)), (None, 0..0));
        // None goes on: nothing is to be looked at because of others.
        round.adopt(7);
        assert_eq!(round.deadline(), None);
    }

    #[test]
    fn what_was_looked_at_is_asked_for_when_all_was() {
        let (files, mut round) = (2 * AT_ONCE, Round::default());
        let key = |path: &str| (config::Class::Private, path.into());
        round.begin(files, true, Instant::now());
        round.next(files, |_| 1);
        round.looked.insert(key("/a"));
        assert_eq!(round.take_looked(), None);
        // What others have opened has come meanwhile.
        round.begin(files, false, Instant::now());
        round.next(files, |_| 1);
        round.looked.insert(key("/b"));
        assert_eq!(round.take_looked(), None);
        round.next(files, |_| 1);
        assert_eq!(round.take_looked(), Some([key("/a"), key("/b")].into()));
        assert_eq!(round.take_looked(), None);
    }

    #[test]
    fn a_portion_has_so_many_files_or_one_row() {
        let lens = [3, AT_ONCE - 3, 1, 0, 0, AT_ONCE + 5, 0, 1, 0, AT_ONCE];
        let (mut round, mut portions) = (Round::default(), Vec::new());
        round.begin(lens.len(), false, Instant::now());
        while round.deadline().is_some() {
            portions.push(round.next(lens.len(), |row| lens[row]));
        }
        assert_eq!(portions, [0..2, 2..5, 5..6, 6..9, 9..10]);
    }
}

//! Numbers of what has gone: slots, partitions and sites are used again once nobody knows them by what they were.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: gives a number to another while a process lives that
//! could take the new one for the old one; gives out a uid a second time.
//!
//! A process learns that a number has gone by a message, and a channel keeps its messages in order. So those that have
//! said that they use what they were sent, and those that were started later, know; a process that retires, or has yet
//! to say so, may not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{SharedList, Site};

use crate::Supervisor;
use crate::life::Life;
use crate::process::{Process, Stage};
use crate::spawn::process_spec::ProcessSpec;

/// How long a number rests in any case, beside twice the time that a line may wait for the logger: a gate may still
/// have a line of the site that has gone.
const REST: Duration = Duration::from_secs(1);

/// Some of all numbers that there can be, a bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberSet {
    words: Vec<u64>,
    count: usize,
}

impl NumberSet {
    /// Adds a number.
    pub fn insert(&mut self, number: u16) {
        let (word, bit) = Self::place(number);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.count += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    /// Whether a number is one of them.
    pub fn contains(&self, number: u16) -> bool {
        let (word, bit) = Self::place(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn place(number: u16) -> (usize, u64) {
        (usize::from(number / 64), 1 << (number % 64))
    }
}

impl FromIterator<u16> for NumberSet {
    fn from_iter<I: IntoIterator<Item = u16>>(numbers: I) -> Self {
        let mut set = Self::default();
        numbers.into_iter().for_each(|number| set.insert(number));
        set
    }
}

/// Numbers that the next sites and partitions can have.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Places of sites that have gone, the lowest first.
    pub sites: Vec<u16>,
    /// Numbers of partitions that are in use.
    pub partitions: NumberSet,
}

/// Sites at their numbers, while some come.
pub(crate) struct Places {
    pub(crate) sites: SharedList<Arc<Site>>,
    /// Places that are free, the lowest last.
    free: Vec<u16>,
    /// The numbers of those that have come.
    pub(crate) added: Vec<u16>,
    /// Numbers of partitions that are in use.
    pub(crate) partitions: NumberSet,
}

impl Places {
    pub(crate) fn new(sites: SharedList<Arc<Site>>, numbers: Numbers) -> Self {
        let free = numbers.sites.into_iter().rev().collect();
        Self { sites, free, added: Vec::new(), partitions: numbers.partitions }
    }

    /// Puts a site that is as it was, and perhaps another object, at its number.
    pub(crate) fn put(&mut self, number: u16, site: &Arc<Site>) {
        let number = usize::from(number);
        if !Arc::ptr_eq(&self.sites[number], site) {
            self.sites.put(number, site.clone());
        }
    }

    /// Gives a site a number.
    pub(crate) fn add(&mut self, site: Arc<Site>) -> u16 {
        let number = self.free.pop().map_or(self.sites.len(), usize::from);
        self.sites.put(number, site);
        self.added.push(number as u16);
        number as u16
    }
}

/// Whether this is the place of a site that serves.
pub fn is_live(site: &Site) -> bool {
    !site.hosts.is_empty()
}

/// Makes a place of a site that has gone: no route, no file and no certificate is its. What its processes were started
/// with stays, until they have ended.
pub fn leave_place(site: &mut Arc<Site>) {
    let site = Arc::make_mut(site);
    site.hosts.clear();
    site.tls = None;
    site.terms = config::Terms::default();
    site.routes.clear();
}

impl Supervisor {
    /// Frees the numbers that nobody knows any more. `is_held` says which slots something of the launcher's still
    /// names.
    pub fn free_numbers(&mut self, is_held: impl Fn(usize) -> bool) {
        let now = Instant::now();
        let rest = REST + 2 * Duration::from_millis(self.context.config.log.flush_ms.into());
        let ignorant = |process: &&Process| process.stage == Stage::Retiring || process.owes_commits > 0;
        let first_ignorant = self
            .processes
            .iter()
            .find(|(_, process)| ignorant(process))
            .map_or(u64::MAX, |(&serial, _)| serial);
        let mut in_use: BTreeSet<usize> = self.processes.values().map(|process| process.slot).collect();
        in_use.extend(&self.departing);
        in_use.extend(self.unread_logs.iter().map(|(slot, _, _)| *slot));
        let is_forgotten = |slot: &usize| {
            let removed = self.slots[*slot].removed;
            removed.is_some_and(|removed| removed.last < first_ignorant && now - removed.at >= rest)
                && !in_use.contains(slot)
                && !is_held(*slot)
        };
        let free: BTreeSet<usize> = self.slots_of_life(Life::Removed).filter(is_forgotten).collect();
        if free.is_empty() {
            return;
        }
        free.iter().for_each(|&slot| self.slots[slot].life = Life::Free);
        for process in self.processes.values_mut() {
            process.relays_to.retain(|slot| !free.contains(slot));
        }
        self.forget_filters(|life| life == Life::Free);
        self.lookup.take();
    }

    /// The slots of this life, the lowest first.
    pub(crate) fn slots_of_life(&self, life: Life) -> impl Iterator<Item = usize> {
        (0..self.slots.len()).filter(move |&slot| self.slots[slot].life == life)
    }

    /// The numbers that new sites and partitions can have.
    pub fn numbers(&self) -> Numbers {
        let sites: NumberSet = self.known().map(|spec| spec.site).collect();
        let places = (0..).zip(&self.context.config.sites);
        let free = places.filter(|(number, site)| !sites.contains(*number) && !is_live(site));
        Numbers { sites: free.map(|(number, _)| number).collect(), partitions: self.partitions() }
    }

    /// Numbers of partitions that are in use.
    pub fn partitions(&self) -> NumberSet {
        self.known().map(|spec| spec.partition).collect()
    }

    /// What all slots are for that anybody knows.
    fn known(&self) -> impl Iterator<Item = &ProcessSpec> {
        let known = self.specs.iter().zip(&self.slots).filter(|(_, slot)| slot.life != Life::Free);
        known.map(|(spec, _)| spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        let numbers = [0, 63, 64, 700, 65_535, 64];
        let set: NumberSet = numbers.into_iter().collect();
        assert_eq!((set.len(), set.is_empty(), NumberSet::default().is_empty()), (5, false, true));
        let found: Vec<u16> = (0..=u16::MAX).filter(|&number| set.contains(number)).collect();
        assert_eq!(found, [0, 63, 64, 700, 65_535]);
    }
}

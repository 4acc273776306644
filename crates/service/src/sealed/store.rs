//! Sealed entries, within limits of number, size and age.
//!
//! Runs in: a service's worker. Sees: what is sealed already. Never: holds a key or anything that is not sealed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use zeroize::Zeroizing;

use super::key::{EntryIndex, SealedKind};

/// The memory that an entry takes besides its content: its places in one map and two trees.
///
/// LIMIT: 210 to 320 bytes, by the sizes of what is stored and how full maps (7/16 to 7/8), trees (about 2/3) and the
/// allocator's blocks are; the most of it.
const ENTRY_OVERHEAD: usize = 320;

/// The share of entries whose users have not come back yet that cannot be displaced by those who have: 1 in this.
const FRESH_SHARE: usize = 8;

/// An entry; what was sealed is overwritten when it goes.
#[derive(Debug)]
pub(crate) struct SealedEntry {
    pub(crate) kind: SealedKind,
    pub(crate) sealed: Zeroizing<Vec<u8>>,
    /// When its key was made.
    pub(crate) key_made: Instant,
    /// How often its key has been used.
    pub(crate) uses: u32,
    pub(crate) expires: Instant,
    /// Whether its user has come back with its key.
    known: bool,
    turn: u64,
}

/// All entries of a cache.
#[derive(Debug)]
pub(crate) struct Store {
    entries: HashMap<EntryIndex, SealedEntry>,
    /// Entries by the time of their last use: of users not seen again, and of the others.
    fresh: BTreeMap<u64, EntryIndex>,
    known: BTreeMap<u64, EntryIndex>,
    expiries: BTreeSet<(Instant, EntryIndex)>,
    turn: u64,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl SealedEntry {
    /// A user's state under a key made at `now`.
    pub(crate) fn state(sealed: Vec<u8>, known: bool, now: Instant, expires: Instant) -> Self {
        let sealed = Zeroizing::new(sealed);
        Self { kind: SealedKind::State, sealed, key_made: now, uses: 0, expires, known, turn: 0 }
    }

    /// The entry in place of a key that was replaced at `now`.
    pub(crate) fn successor(sealed: Vec<u8>, now: Instant, expires: Instant) -> Self {
        Self { kind: SealedKind::Successor, ..Self::state(sealed, true, now, expires) }
    }
}

impl Store {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            fresh: BTreeMap::new(),
            known: BTreeMap::new(),
            expiries: BTreeSet::new(),
            turn: 0,
            bytes: 0,
            entries_max,
            bytes_max,
        }
    }

    /// The counted size of a sealed content of `length` bytes.
    pub(crate) const fn size(length: usize) -> usize {
        length + ENTRY_OVERHEAD
    }

    /// Puts an entry in, in place of the one at `index`; others go if there is no room.
    pub(crate) fn insert(&mut self, index: EntryIndex, mut entry: SealedEntry, now: Instant) {
        self.purge(now);
        self.remove(&index);
        let size = Self::size(entry.sealed.len());
        while self.entries.len() >= self.entries_max || self.bytes + size > self.bytes_max {
            if !self.evict() {
                break;
            }
        }
        self.turn += 1;
        entry.turn = self.turn;
        self.bytes += size;
        self.expiries.insert((entry.expires, index));
        self.turns(entry.known).insert(entry.turn, index);
        self.entries.insert(index, entry);
    }

    /// The entry at `index`, unless it has expired.
    pub(crate) fn find(&mut self, index: &EntryIndex, now: Instant) -> Option<&SealedEntry> {
        self.purge(now);
        self.entries.get(index)
    }

    /// Notes that the user of `index` has come back with the key.
    pub(crate) fn visit(&mut self, index: &EntryIndex) {
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        self.turn += 1;
        let (was_known, was) = (entry.known, entry.turn);
        entry.uses = entry.uses.saturating_add(1);
        entry.known = true;
        entry.turn = self.turn;
        self.turns(was_known).remove(&was);
        let turn = self.turn;
        self.turns(true).insert(turn, *index);
    }

    /// Gives an entry another content; all else about it stays.
    pub(crate) fn reseal(&mut self, index: &EntryIndex, sealed: Vec<u8>, expires: Instant, now: Instant) {
        if let Some(entry) = self.remove(index) {
            let SealedEntry { key_made, uses, known, kind, .. } = entry;
            let sealed = Zeroizing::new(sealed);
            self.insert(*index, SealedEntry { kind, sealed, key_made, uses, expires, known, turn: 0 }, now);
        }
    }

    /// Removes an entry, which may not be there.
    pub(crate) fn remove(&mut self, index: &EntryIndex) -> Option<SealedEntry> {
        let entry = self.entries.remove(index)?;
        self.bytes -= Self::size(entry.sealed.len());
        self.expiries.remove(&(entry.expires, *index));
        self.turns(entry.known).remove(&entry.turn);
        Some(entry)
    }

    /// Removes what has expired.
    fn purge(&mut self, now: Instant) {
        while let Some(&(expires, index)) = self.expiries.first()
            && expires <= now
        {
            self.remove(&index);
        }
    }

    /// Removes the entry that has not been used for longest; false if there is none.
    ///
    /// SECURITY: whoever sends requests without a cookie makes entries at will. They displace each other first,
    /// and those of users who came back only up to a share.
    fn evict(&mut self) -> bool {
        let many_fresh = self.fresh.len() * FRESH_SHARE > self.entries.len();
        let (first, second) =
            if many_fresh { (&self.fresh, &self.known) } else { (&self.known, &self.fresh) };
        let oldest = first.first_key_value().or_else(|| second.first_key_value());
        match oldest.map(|(_, index)| *index) {
            Some(index) => self.remove(&index).is_some(),
            None => false,
        }
    }

    fn turns(&mut self, known: bool) -> &mut BTreeMap<u64, EntryIndex> {
        if known { &mut self.known } else { &mut self.fresh }
    }

    /// How many entries there are, and how many bytes they count for.
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    /// Every entry, to be looked at and changed.
    #[cfg(test)]
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = (&EntryIndex, &mut SealedEntry)> {
        self.entries.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn index(number: u8) -> EntryIndex {
        [number; 16]
    }

    fn entry(length: usize, expires: Instant) -> SealedEntry {
        SealedEntry::state(vec![0; length], false, expires, expires)
    }

    fn held(store: &Store) -> Vec<u8> {
        let mut held: Vec<u8> = store.entries.keys().map(|index| index[0]).collect();
        held.sort_unstable();
        held
    }

    #[test]
    fn the_one_not_used_for_longest_goes_first() {
        let now = Instant::now();
        let later = now + Duration::from_secs(9);
        let mut store = Store::new(3, usize::MAX);
        for number in 1..=3 {
            store.insert(index(number), entry(1, later), now);
            store.visit(&index(number));
        }
        store.visit(&index(1));
        store.insert(index(4), entry(1, later), now);
        assert_eq!(held(&store), [1, 3, 4]);
    }

    #[test]
    fn the_sum_of_sizes_is_limited() {
        let now = Instant::now();
        let later = now + Duration::from_secs(9);
        let mut store = Store::new(100, 3 * Store::size(10));
        for number in 1..=5 {
            store.insert(index(number), entry(10, later), now);
        }
        assert_eq!(held(&store), [3, 4, 5]);
        store.insert(index(6), entry(20 + ENTRY_OVERHEAD, later), now);
        assert_eq!(held(&store), [5, 6]);
        assert_eq!(store.extent(), (2, 3 * Store::size(10)));
        store.insert(index(6), entry(10, later), now);
        assert_eq!(store.extent(), (2, 2 * Store::size(10)));
    }

    #[test]
    fn a_flood_of_new_ones_leaves_those_who_came_back() {
        let now = Instant::now();
        let later = now + Duration::from_secs(9);
        let mut store = Store::new(16, usize::MAX);
        for number in 0..10 {
            store.insert(index(number), entry(1, later), now);
            store.visit(&index(number));
        }
        for number in 10..=250 {
            store.insert(index(number), entry(1, later), now);
        }
        assert_eq!(held(&store)[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(store.extent().0, 16);
        // The other way round, new users find room in a store full of known ones.
        for number in 0..16 {
            store.insert(index(number), entry(1, later), now);
            store.visit(&index(number));
        }
        store.insert(index(100), entry(1, later), now);
        store.insert(index(101), entry(1, later), now);
        store.insert(index(102), entry(1, later), now);
        let fresh = held(&store).into_iter().filter(|&number| number >= 100).count();
        assert!(fresh >= 2, "{:?}", held(&store));
    }

    #[test]
    fn what_has_expired_is_gone_whoever_asks() {
        let now = Instant::now();
        let mut store = Store::new(10, usize::MAX);
        store.insert(index(1), entry(1, now + Duration::from_secs(1)), now);
        store.insert(index(2), entry(1, now + Duration::from_secs(2)), now);
        assert!(store.find(&index(1), now).is_some());
        assert!(store.find(&index(1), now + Duration::from_secs(1)).is_none());
        assert_eq!(held(&store), [2]);
        store.remove(&index(2));
        assert_eq!(store.extent(), (0, 0));
        assert!(store.fresh.is_empty() && store.known.is_empty() && store.expiries.is_empty());
    }

    #[test]
    fn an_entry_larger_than_everything_leaves_nothing_behind_but_itself() {
        let now = Instant::now();
        let mut store = Store::new(10, 10);
        store.insert(index(1), entry(100, now + Duration::from_secs(1)), now);
        assert_eq!(held(&store), [1], "the settings are checked so that this does not happen");
    }
}

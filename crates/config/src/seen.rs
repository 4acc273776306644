//! Things seen so far, to find what is there twice.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: decoded values. Must never: forget the first
//! place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Things seen so far, with the place of the first of each.
pub(crate) struct FirstSeen<K>(HashMap<K, usize>);

impl<K: Hash + Eq> FirstSeen<K> {
    pub(crate) fn new() -> FirstSeen<K> {
        FirstSeen(HashMap::new())
    }

    /// The place where `key` was first seen; `None` if that is here.
    pub(crate) fn first(&mut self, key: K, offset: usize) -> Option<usize> {
        match self.0.entry(key) {
            Entry::Occupied(first) => Some(*first.get()),
            Entry::Vacant(new) => {
                new.insert(offset);
                None
            }
        }
    }
}

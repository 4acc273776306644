//! The values of the clients, or other keys, that were heard of last: a table with a limit.
//!
//! Runs in: gates, filters, services; pure. Sees: addresses of clients. Never: holds more than its limit; who was not
//! heard of for longest is forgotten first.

use std::collections::HashMap;
use std::hash::Hash;

use crate::address::ClientOrigin;
use crate::hash::SeededState;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct RecentEntry<V, K> {
    key: K,
    value: V,
    older: u32,
    newer: u32,
}

/// See the file's head.
#[derive(Debug)]
pub struct Recent<V, K = ClientOrigin> {
    places: HashMap<K, u32, SeededState>,
    entries: Vec<RecentEntry<V, K>>,
    oldest: u32,
    newest: u32,
    limit: u32,
}

impl<V, K: Copy + Eq + Hash> Recent<V, K> {
    /// A table of at most `limit` clients, at least one.
    pub fn new(limit: u32) -> Self {
        Self {
            places: HashMap::default(),
            entries: Vec::new(),
            oldest: NONE,
            newest: NONE,
            limit: limit.max(1),
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: K) -> Option<&V> {
        self.places.get(&key).map(|&at| &self.entries[at as usize].value)
    }

    /// The value of `key`, which becomes the most recent; `new` if it had none.
    pub fn touch(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let at = match self.places.get(&key) {
            Some(&at) => {
                self.unlink(at);
                at
            }
            None => self.add(key, new()),
        };
        self.link(at);
        &mut self.entries[at as usize].value
    }

    /// Everything that is known.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// A place that is in no order yet: a new one, or that of the oldest.
    fn add(&mut self, key: K, value: V) -> u32 {
        let at = if self.entries.len() < self.limit as usize {
            self.entries.push(RecentEntry { key, value, older: NONE, newer: NONE });
            (self.entries.len() - 1) as u32
        } else {
            let at = self.oldest;
            self.unlink(at);
            let entry = &mut self.entries[at as usize];
            self.places.remove(&entry.key);
            (entry.key, entry.value) = (key, value);
            at
        };
        self.places.insert(key, at);
        at
    }

    fn link(&mut self, at: u32) {
        let older = std::mem::replace(&mut self.newest, at);
        match older {
            NONE => self.oldest = at,
            older => self.entries[older as usize].newer = at,
        }
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (older, NONE);
    }

    fn unlink(&mut self, at: u32) {
        let RecentEntry { older, newer, .. } = self.entries[at as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }
}

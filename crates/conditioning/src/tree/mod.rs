//! Waiting items, by the addresses of their clients: served by recency, thrown out by weight.
//!
//! Runs in: gates (connections without a whole request; requests that wait), site workers, filters; pure. Sees:
//! addresses, which clients choose. Never: loses an item, gives one out twice, or takes more memory for addresses
//! that are chosen to be bad than for others.
//!
//! Every operation follows one path of at most 8 (IPv4) or 16 (IPv6) nodes.
//!
//! Bound of waiting: while an item is there, each node on its path serves each other branch at most once before the
//! item's own. So it is served after at most `k * b1 * b2 * ... * bn` servings, where `bi` (16 at most) is the number
//! of branches that have had items at level `i`, and `k` is its place among the items of its address.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2.

mod arena;
mod service_order;
#[cfg(test)]
mod tests;
mod trie;

use crate::address::{AddressRange, ClientOrigin};

use arena::{Arena, NONE};
use trie::{LeaveReason, Trie};

/// LIMIT: addresses whose recency is remembered although nothing of theirs waits: about 2 MiB, so that most of what is
/// looked at stays in a processor's cache.
const REMEMBERED_MAX: u32 = 16_384;

/// The name of an item in a [`Tree`]; that of an item that has left names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
struct ItemSlot<T> {
    item: Option<T>,
    generation: u32,
    leaf: u32,
    /// Neighbours among the items of its leaf.
    older: u32,
    newer: u32,
}

/// See the file's head.
#[derive(Debug)]
pub struct Tree<T> {
    trie: Trie,
    slots: Arena<ItemSlot<T>>,
    length: usize,
    generation: u32,
    remembered: EmptyLeaves,
    /// Items that [`Tree::remove_heaviest`] took away.
    pub evicted: u64,
}

/// Leaves without items, oldest first, linked by their `first` (older) and `last` (newer).
#[derive(Debug)]
struct EmptyLeaves {
    oldest: u32,
    newest: u32,
    count: u32,
    limit: u32,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Tree<T> {
    /// An empty tree.
    pub fn new() -> Self {
        Self::remembering(REMEMBERED_MAX)
    }

    /// One that remembers the recency of at most `limit` addresses of which nothing waits.
    pub fn remembering(limit: u32) -> Self {
        Self {
            trie: Trie::default(),
            slots: Arena::default(),
            length: 0,
            generation: 0,
            remembered: EmptyLeaves { oldest: NONE, newest: NONE, count: 0, limit },
            evicted: 0,
        }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes an item in, behind others of its address.
    pub fn insert(&mut self, origin: ClientOrigin, item: T) -> ItemKey {
        let leaf = self.enter(origin);
        let older = self.trie.leaf(leaf).last;
        let key = self.place(leaf, item, older, NONE);
        match older {
            NONE => self.trie.leaf_mut(leaf).first = key.slot,
            older => self.slots[older].newer = key.slot,
        }
        self.trie.leaf_mut(leaf).last = key.slot;
        key
    }

    /// Takes an item that was given out in vain back in, so that it is the next to be given out again.
    pub fn insert_next(&mut self, origin: ClientOrigin, item: T) -> ItemKey {
        let leaf = self.enter(origin);
        let newer = self.trie.leaf(leaf).first;
        let key = self.place(leaf, item, NONE, newer);
        match newer {
            NONE => self.trie.leaf_mut(leaf).last = key.slot,
            newer => self.slots[newer].older = key.slot,
        }
        self.trie.leaf_mut(leaf).first = key.slot;
        self.trie.unserve(leaf);
        key
    }

    /// Notes that something of `origin` was served without having waited.
    pub fn served(&mut self, origin: ClientOrigin) {
        let leaf = self.enter(origin);
        self.leave(leaf, LeaveReason::Served);
    }

    /// The item called `key`.
    pub fn get(&self, key: ItemKey) -> Option<&T> {
        self.slots.get(key.slot).filter(|slot| slot.generation == key.generation)?.item.as_ref()
    }

    /// Takes the item called `key` out; its address is not served by that.
    pub fn remove(&mut self, key: ItemKey) -> Option<T> {
        self.get(key)?;
        self.take(key.slot, LeaveReason::Removed)
    }

    /// Gives out the item to be served next: the oldest of the address to which, at each level, the least recently
    /// served branch with items leads. All branches on the way become the last to be served again.
    // Not an iterator: what comes next depends on what was inserted in between.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<T> {
        let leaf = self.trie.next()?;
        self.take(self.trie.leaf(leaf).first, LeaveReason::Served)
    }

    /// [`Tree::next`] among the addresses all of whose ranges are accepted: `accepts` is asked for every range on the
    /// way, the widest first, and what is in a range that it refuses is left where it is.
    pub fn next_where(&mut self, mut accepts: impl FnMut(AddressRange) -> bool) -> Option<T> {
        let leaf = self.trie.next_where(&mut accepts)?;
        self.take(self.trie.leaf(leaf).first, LeaveReason::Served)
    }

    /// The item that [`Tree::next`] would give out.
    pub fn peek(&self) -> Option<(ItemKey, &T)> {
        self.oldest_of(self.trie.next()?)
    }

    /// Gives out the item called `key` as [`Tree::next`] does.
    pub fn serve(&mut self, key: ItemKey) -> Option<T> {
        self.get(key)?;
        self.take(key.slot, LeaveReason::Served)
    }

    /// The oldest item of the address to which the largest counts lead.
    pub fn heaviest(&self) -> Option<(ItemKey, &T)> {
        self.oldest_of(self.trie.heaviest(self.evicted as u8)?)
    }

    /// Takes that item out; its address is not served by that.
    pub fn remove_heaviest(&mut self) -> Option<T> {
        let (key, _) = self.heaviest()?;
        self.evicted += 1;
        self.take(key.slot, LeaveReason::Removed)
    }

    /// Whose the item called `key` is.
    pub fn origin(&self, key: ItemKey) -> Option<ClientOrigin> {
        self.get(key).map(|_| self.trie.leaf(self.slots[key.slot].leaf).origin())
    }

    /// The heaviest ranges, for people: the narrowest that hold at least a tenth of all items, heaviest first.
    pub fn ranges(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        let least = u32::try_from(self.length.div_ceil(10)).unwrap_or(u32::MAX).max(1);
        let mut ranges = self.trie.ranges(least);
        ranges.sort_by_key(|&(range, count)| (std::cmp::Reverse(count), range));
        ranges.truncate(at_most);
        ranges
    }

    fn oldest_of(&self, leaf: u32) -> Option<(ItemKey, &T)> {
        let slot = self.trie.leaf(leaf).first;
        let ItemSlot { item, generation, .. } = &self.slots[slot];
        Some((ItemKey { slot, generation: *generation }, item.as_ref()?))
    }

    /// Counts an item in; its leaf is not among the empty ones any longer.
    fn enter(&mut self, origin: ClientOrigin) -> u32 {
        let leaf = self.trie.enter(origin);
        let Self { trie, remembered, .. } = self;
        let found = trie.leaf(leaf);
        // One that is new was never served; one that was served and has no other item is remembered.
        if found.count == 1 && found.served > 0 {
            remembered.forget(trie, leaf);
        }
        leaf
    }

    /// Counts an item out.
    fn leave(&mut self, leaf: u32, how: LeaveReason) {
        self.trie.leave(leaf, how);
        let left = self.trie.leaf(leaf);
        if left.count > 0 {
            return;
        }
        if left.served == 0 {
            return self.trie.prune(leaf);
        }
        self.remembered.add(&mut self.trie, leaf);
        if self.remembered.count > self.remembered.limit {
            let oldest = self.remembered.oldest;
            self.remembered.forget(&mut self.trie, oldest);
            self.trie.prune(oldest);
        }
    }

    fn place(&mut self, leaf: u32, item: T, older: u32, newer: u32) -> ItemKey {
        self.length += 1;
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let slot = self.slots.add(ItemSlot { item: Some(item), generation, leaf, older, newer });
        ItemKey { slot, generation }
    }

    fn take(&mut self, slot: u32, how: LeaveReason) -> Option<T> {
        let ItemSlot { item, leaf, older, newer, .. } = &mut self.slots[slot];
        let (item, leaf, older, newer) = (item.take()?, *leaf, *older, *newer);
        self.slots.release(slot);
        self.length -= 1;
        match older {
            NONE => self.trie.leaf_mut(leaf).first = newer,
            older => self.slots[older].newer = newer,
        }
        match newer {
            NONE => self.trie.leaf_mut(leaf).last = older,
            newer => self.slots[newer].older = older,
        }
        self.leave(leaf, how);
        Some(item)
    }
}

impl EmptyLeaves {
    fn add(&mut self, trie: &mut Trie, leaf: u32) {
        let older = std::mem::replace(&mut self.newest, leaf);
        match older {
            NONE => self.oldest = leaf,
            older => trie.leaf_mut(older).last = leaf,
        }
        (trie.leaf_mut(leaf).first, trie.leaf_mut(leaf).last) = (older, NONE);
        self.count += 1;
    }

    fn forget(&mut self, trie: &mut Trie, leaf: u32) {
        let (older, newer) = (trie.leaf(leaf).first, trie.leaf(leaf).last);
        match older {
            NONE => self.oldest = newer,
            older => trie.leaf_mut(older).last = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => trie.leaf_mut(newer).first = older,
        }
        (trie.leaf_mut(leaf).first, trie.leaf_mut(leaf).last) = (NONE, NONE);
        self.count -= 1;
    }
}

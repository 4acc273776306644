//! The paper's tree without its items: how many there are below each prefix, and how recently each was served.
//!
//! Runs in: gates, site workers, filters; pure. Sees: addresses, which clients choose. Never: has an inner node with
//! fewer than two branches, so that n addresses cost at most n leaves and n - 1 inner nodes, however they lie.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2.1 ("16-ary tree, with an LRU list maintained across
//! the 16 elements of each parent; each node also contains a count; lazily allocated; subtrees without requests can be
//! pruned"). A node of the paper's that has one branch only is left out here. Its list would only say when that branch
//! was served last, which the next node below knows.
//!
//! Forgetting must not let anybody be starved: a client could come, be served, be forgotten, and come again as one
//! who was never served, each time before its neighbour. So who is new counts as served when those who were forgotten
//! were (`horizon`): only who was served later than that is behind it.

#[cfg(test)]
mod check;

use crate::address::{AddressRange, ClientOrigin};

use super::arena::{Arena, NONE};
use super::service_order::ServiceOrder;

/// In the number of a node: it is a leaf.
const LEAF: u32 = 1 << 31;

/// A place where addresses part.
///
/// In this order: what every visit looks at, and the first few branches, are one line of a processor's cache.
#[derive(Debug)]
#[repr(C, align(64))]
struct Inner {
    /// An address below it, of which only the first `depth` nibbles count.
    key: u64,
    order: ServiceOrder,
    /// Items below it.
    count: u32,
    /// Branches with items.
    filled: u16,
    /// How many nibbles all addresses below it share.
    depth: u8,
    /// The inner node above, if any.
    parent: u32,
    /// The number of the serving that came by here last; 0 for none.
    served: u64,
    branches: [u32; 16],
}

/// All items of one address. While it has none, `first` and `last` are its neighbours among those remembered.
#[derive(Debug)]
pub struct Leaf {
    key: u64,
    /// The oldest item.
    pub first: u32,
    /// The newest item.
    pub last: u32,
    /// How many items there are.
    pub count: u32,
    /// The inner node above, if any.
    parent: u32,
    v6: bool,
    /// The number of the serving that was the last of its own; 0 for none.
    pub served: u64,
}

impl Leaf {
    /// Whose it is.
    pub fn origin(&self) -> ClientOrigin {
        ClientOrigin::new(self.key, self.v6)
    }
}

/// How an item leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LeaveReason {
    /// It is served: its branches become the last to be served again.
    Served,
    /// It is taken away.
    Removed,
}

/// See the file's head.
#[derive(Debug)]
pub struct Trie {
    /// Of IPv4 and of IPv6.
    roots: [u32; 2],
    /// Whether IPv6 was served last.
    last_v6: bool,
    servings: u64,
    /// The number of the last serving of a leaf that is forgotten.
    horizon: u64,
    inners: Arena<Inner>,
    leaves: Arena<Leaf>,
}

impl Default for Trie {
    fn default() -> Self {
        // IPv4 is the first branch.
        Self {
            roots: [NONE; 2],
            last_v6: true,
            servings: 0,
            horizon: 0,
            inners: Arena::default(),
            leaves: Arena::default(),
        }
    }
}

/// The nibble of `key` that follows its first `depth`.
fn nibble(key: u64, depth: u8) -> u8 {
    (key >> (60 - 4 * u32::from(depth))) as u8 & 15
}

/// How many nibbles two keys share.
fn shared(one: u64, other: u64) -> u8 {
    ((one ^ other).leading_zeros() / 4) as u8
}

impl Trie {
    /// The leaf `at`.
    pub fn leaf(&self, at: u32) -> &Leaf {
        &self.leaves[at]
    }

    /// The leaf `at`.
    pub fn leaf_mut(&mut self, at: u32) -> &mut Leaf {
        &mut self.leaves[at]
    }

    /// Writes `node` where the number of the node with this key below `parent` is written.
    fn put(&mut self, parent: u32, origin: ClientOrigin, node: u32) {
        match parent {
            NONE => self.roots[usize::from(origin.is_v6())] = node,
            parent => {
                let parent = &mut self.inners[parent];
                parent.branches[usize::from(nibble(origin.key(), parent.depth))] = node;
            }
        }
    }

    fn count(&self, node: u32) -> u32 {
        match node {
            NONE => 0,
            node if node & LEAF != 0 => self.leaves[node ^ LEAF].count,
            node => self.inners[node].count,
        }
    }

    /// Counts an item of `origin` in, and names its leaf.
    pub fn enter(&mut self, origin: ClientOrigin) -> u32 {
        let key = origin.key();
        let mut parent = NONE;
        let mut node = self.roots[usize::from(origin.is_v6())];
        loop {
            if node == NONE {
                let leaf = self.sprout(origin, parent);
                self.put(parent, origin, leaf | LEAF);
                return leaf;
            }
            if node & LEAF != 0 {
                let leaf = &mut self.leaves[node ^ LEAF];
                if leaf.key != key {
                    let other = leaf.key;
                    return self.part(node, parent, other, origin);
                }
                leaf.count += 1;
                return node ^ LEAF;
            }
            let inner = &mut self.inners[node];
            if shared(inner.key, key) < inner.depth {
                let other = inner.key;
                return self.part(node, parent, other, origin);
            }
            let branch = nibble(key, inner.depth);
            inner.count += 1;
            inner.filled |= 1 << branch;
            parent = node;
            node = inner.branches[usize::from(branch)];
        }
    }

    /// A leaf with one item.
    fn sprout(&mut self, origin: ClientOrigin, parent: u32) -> u32 {
        let (key, v6) = (origin.key(), origin.is_v6());
        self.leaves.add(Leaf { key, first: NONE, last: NONE, count: 1, parent, v6, served: 0 })
    }

    /// Parts `node`, which is below `parent` and whose addresses begin like `other`, from a new leaf.
    fn part(&mut self, node: u32, parent: u32, other: u64, origin: ClientOrigin) -> u32 {
        let depth = shared(other, origin.key());
        let (old, new) = (nibble(other, depth), nibble(origin.key(), depth));
        let (count, served) = match node & LEAF != 0 {
            true => (self.leaves[node ^ LEAF].count, self.leaves[node ^ LEAF].served),
            false => (self.inners[node].count, self.inners[node].served),
        };
        let mut order = ServiceOrder::NEW;
        if served > self.horizon {
            order.serve(old);
        } else if self.horizon > 0 {
            order.unserve(old);
        }
        let filled = 1 << new | u16::from(count > 0) << old;
        let branches = [NONE; 16];
        let inner = Inner { key: other, order, count: count + 1, filled, depth, served, parent, branches };
        let inner = self.inners.add(inner);
        let leaf = self.sprout(origin, inner);
        self.hang(node, inner);
        let branches = &mut self.inners[inner].branches;
        branches[usize::from(old)] = node;
        branches[usize::from(new)] = leaf | LEAF;
        self.put(parent, origin, inner);
        leaf
    }

    /// Hangs `node` below `parent`.
    fn hang(&mut self, node: u32, parent: u32) {
        match node & LEAF != 0 {
            true => self.leaves[node ^ LEAF].parent = parent,
            false => self.inners[node].parent = parent,
        }
    }

    /// Counts an item of `leaf` out.
    pub fn leave(&mut self, leaf: u32, how: LeaveReason) {
        let leaf = &mut self.leaves[leaf];
        leaf.count -= 1;
        if how == LeaveReason::Served {
            self.servings += 1;
            leaf.served = self.servings;
            self.last_v6 = leaf.v6;
        }
        let (key, mut below, mut node) = (leaf.key, leaf.count, leaf.parent);
        while node != NONE {
            let inner = &mut self.inners[node];
            let branch = nibble(key, inner.depth);
            if how == LeaveReason::Served {
                inner.served = self.servings;
                inner.order.serve(branch);
            }
            if below == 0 {
                inner.filled &= !(1 << branch);
            }
            inner.count -= 1;
            (below, node) = (inner.count, inner.parent);
        }
    }

    /// An item of `leaf` was served in vain: its branches become the first to be served again.
    pub fn unserve(&mut self, leaf: u32) {
        let Leaf { key, v6, parent, .. } = self.leaves[leaf];
        self.last_v6 = !v6;
        let mut node = parent;
        while node != NONE {
            let inner = &mut self.inners[node];
            inner.order.unserve(nibble(key, inner.depth));
            node = inner.parent;
        }
    }

    /// Takes a leaf without items away, and the inner node above it if that has one branch left.
    pub fn prune(&mut self, leaf: u32) {
        let (origin, parent) = (self.leaves[leaf].origin(), self.leaves[leaf].parent);
        self.horizon = self.horizon.max(self.leaves[leaf].served);
        self.leaves.release(leaf);
        self.put(parent, origin, NONE);
        if parent == NONE {
            return;
        }
        let &Inner { ref branches, parent: above, .. } = &self.inners[parent];
        let mut left = branches.iter().filter(|&&node| node != NONE);
        if let (Some(&only), None) = (left.next(), left.next()) {
            self.hang(only, above);
            self.put(above, origin, only);
            self.inners.release(parent);
        }
    }

    /// The leaf to be served next: that of the least recently served branch with items at each level.
    pub fn next(&self) -> Option<u32> {
        let families = [!self.last_v6, self.last_v6];
        let mut node =
            families.map(|v6| self.roots[usize::from(v6)]).into_iter().find(|&root| self.count(root) > 0)?;
        while node & LEAF == 0 {
            let inner = &self.inners[node];
            node = inner.branches[usize::from(inner.order.first(inner.filled)?)];
        }
        Some(node ^ LEAF)
    }

    /// The leaf to be served next among those all of whose ranges are accepted.
    pub fn next_where(&self, accepts: &mut impl FnMut(AddressRange) -> bool) -> Option<u32> {
        let families = [!self.last_v6, self.last_v6];
        families.into_iter().find_map(|v6| {
            let root = self.roots[usize::from(v6)];
            (self.count(root) > 0).then(|| self.search(root, v6, accepts)).flatten()
        })
    }

    fn search(&self, node: u32, v6: bool, accepts: &mut impl FnMut(AddressRange) -> bool) -> Option<u32> {
        if node & LEAF != 0 {
            let origin = self.leaves[node ^ LEAF].origin();
            return accepts(origin.range(u8::MAX)).then_some(node ^ LEAF);
        }
        let inner = &self.inners[node];
        if !accepts(inner.range(v6)) {
            return None;
        }
        let mut branches = inner.order.iter(inner.filled);
        branches.find_map(|branch| self.search(inner.branches[usize::from(branch)], v6, accepts))
    }

    /// The leaf with items to which the largest counts lead. Of equal ones, `turn` decides.
    pub fn heaviest(&self, turn: u8) -> Option<u32> {
        let v6 = self.count(self.roots[1]) > self.count(self.roots[0]);
        let mut node = self.roots[usize::from(v6)];
        if self.count(node) == 0 {
            return None;
        }
        while node & LEAF == 0 {
            let inner = &self.inners[node];
            node = inner.heaviest(turn, |branch| self.count(branch));
        }
        Some(node ^ LEAF)
    }

    /// The narrowest ranges with at least `least` items each.
    pub fn ranges(&self, least: u32) -> Vec<(AddressRange, u32)> {
        let mut found = Vec::new();
        for v6 in [false, true] {
            let root = self.roots[usize::from(v6)];
            if self.count(root) >= least {
                self.narrow(root, v6, least, &mut found);
            }
        }
        found
    }

    fn narrow(&self, node: u32, v6: bool, least: u32, found: &mut Vec<(AddressRange, u32)>) {
        if node & LEAF != 0 {
            let leaf = &self.leaves[node ^ LEAF];
            return found.push((leaf.origin().range(u8::MAX), leaf.count));
        }
        let inner = &self.inners[node];
        let before = found.len();
        for &branch in inner.branches.iter().filter(|&&branch| self.count(branch) >= least) {
            self.narrow(branch, v6, least, found);
        }
        if found.len() == before {
            found.push((inner.range(v6), inner.count));
        }
    }
}

impl Inner {
    fn range(&self, v6: bool) -> AddressRange {
        ClientOrigin::new(self.key, v6).range(4 * self.depth)
    }

    fn heaviest(&self, turn: u8, count: impl Fn(u32) -> u32) -> u32 {
        let mut most = (0, NONE);
        for step in 0..16 {
            let branch = turn.wrapping_add(step) & 15;
            if self.filled & 1 << branch != 0 {
                let node = self.branches[usize::from(branch)];
                let weight = count(node);
                if weight > most.0 {
                    most = (weight, node);
                }
            }
        }
        most.1
    }
}

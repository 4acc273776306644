//! Nodes by number in one block of memory: 4 bytes instead of a pointer's 8, and no allocation for each.
//!
//! Runs in: gates, site workers, filters; pure. Sees: nothing. Never: gives memory back, so its size is that of the
//! largest number there ever was.

use std::ops::{Index, IndexMut};

/// Nothing: the number that no node has.
pub const NONE: u32 = u32::MAX;

/// LIMIT: nodes of one kind; the upper bit tells kinds apart.
const NODES_MAX: usize = 1 << 31;

/// A block of so many bytes gets large pages: by then what more they may take (one of 2 MiB) is little, and most of the
/// time of an operation on nodes that lie all over it would go into finding their pages.
const LARGE_BYTES: usize = 8 << 20;

/// All nodes of one kind.
#[derive(Debug)]
pub struct Arena<N> {
    nodes: Vec<N>,
    free: Vec<u32>,
}

impl<N> Default for Arena<N> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }
}

impl<N> Arena<N> {
    /// Takes a node in, and gives it a number.
    pub fn add(&mut self, node: N) -> u32 {
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        assert!(self.nodes.len() < NODES_MAX, "invariant: there is no memory for so many nodes");
        if self.nodes.len() == self.nodes.capacity() {
            self.grow();
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn grow(&mut self) {
        let capacity = (2 * self.nodes.capacity()).max(4);
        if capacity * size_of::<N>() < LARGE_BYTES {
            return self.nodes.reserve(1);
        }
        // A block of its own: in one that is moved to where it can grow, large pages would fall apart.
        let mut larger = Vec::with_capacity(capacity);
        sys::memory::large_pages(larger.spare_capacity_mut());
        larger.append(&mut self.nodes);
        self.nodes = larger;
    }

    /// Lets the number `at` be used for another node.
    pub fn release(&mut self, at: u32) {
        self.free.push(at);
    }

    /// The node `at`, which may have been released.
    pub fn get(&self, at: u32) -> Option<&N> {
        self.nodes.get(at as usize)
    }

    /// How many nodes are in use.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}

impl<N> Index<u32> for Arena<N> {
    type Output = N;
    fn index(&self, at: u32) -> &N {
        &self.nodes[at as usize]
    }
}

impl<N> IndexMut<u32> for Arena<N> {
    fn index_mut(&mut self, at: u32) -> &mut N {
        &mut self.nodes[at as usize]
    }
}

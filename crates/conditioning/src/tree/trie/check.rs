//! The invariants of every node.
//!
//! Runs in: tests.

use super::*;

impl Trie {
    /// Checks every node, and that there are no others; how many leaves have no items.
    pub fn check(&self) -> u32 {
        let mut seen = (0, 0, 0);
        for v6 in [false, true] {
            let root = self.roots[usize::from(v6)];
            if root != NONE {
                self.check_node(root, NONE, v6, &mut seen);
            }
        }
        assert_eq!((self.inners.used(), self.leaves.used()), (seen.0, seen.1));
        assert!(seen.0 < seen.1 || seen.0 == 0);
        seen.2
    }

    fn check_node(&self, node: u32, above: u32, v6: bool, seen: &mut (usize, usize, u32)) {
        if node & LEAF != 0 {
            let leaf = &self.leaves[node ^ LEAF];
            assert_eq!((leaf.parent, leaf.v6), (above, v6));
            assert!(leaf.count > 0 || leaf.served > 0);
            seen.1 += 1;
            seen.2 += u32::from(leaf.count == 0);
            return;
        }
        let inner = &self.inners[node];
        seen.0 += 1;
        assert_eq!(inner.parent, above);
        let branches = || (0_u8..).zip(inner.branches).filter(|(_, branch)| *branch != NONE);
        assert!(branches().count() >= 2);
        assert_eq!(inner.count, branches().map(|(_, branch)| self.count(branch)).sum::<u32>());
        let filled = branches().filter(|(_, branch)| self.count(*branch) > 0);
        assert_eq!(inner.filled, filled.fold(0, |set, (at, _)| set | 1 << at));
        for (at, branch) in branches() {
            let key = match branch & LEAF {
                0 => self.inners[branch].key,
                _ => self.leaves[branch ^ LEAF].key,
            };
            assert!(shared(key, inner.key) >= inner.depth && nibble(key, inner.depth) == at);
            assert!(branch & LEAF != 0 || self.inners[branch].depth > inner.depth);
            self.check_node(branch, node, v6, seen);
        }
    }
}

//! The paper's tree as the paper has it: a node for every nibble, a list for every node, nothing left out.
//!
//! Runs in: tests. Slow, and simple enough to be seen to be right.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use conditioning::{AddressRange, ClientOrigin};

/// Nibbles of an address, the family before them.
pub fn path(address: IpAddr) -> Vec<u8> {
    let nibbles =
        |bytes: &[u8]| -> Vec<u8> { bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect() };
    match address {
        IpAddr::V4(address) => [vec![0], nibbles(&address.octets())].concat(),
        IpAddr::V6(address) => [vec![1], nibbles(&address.octets()[..8])].concat(),
    }
}

#[derive(Debug)]
pub struct Node {
    children: BTreeMap<u8, Node>,
    lru: Vec<u8>,
    count: usize,
    items: VecDeque<u32>,
}

impl Default for Node {
    fn default() -> Self {
        Self { children: BTreeMap::new(), lru: (0..16).collect(), count: 0, items: VecDeque::new() }
    }
}

impl Node {
    pub fn insert(&mut self, path: &[u8], item: u32) {
        self.count += 1;
        match path {
            [] => self.items.push_back(item),
            [first, rest @ ..] => self.children.entry(*first).or_default().insert(rest, item),
        }
    }

    fn first_child(&self) -> Option<u8> {
        self.lru.iter().copied().find(|child| self.children.get(child).is_some_and(|child| child.count > 0))
    }

    fn served_child(&mut self, child: u8) {
        self.lru.retain(|&other| other != child);
        self.lru.push(child);
    }

    pub fn next(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        let Some(child) = self.first_child() else {
            return self.items.pop_front();
        };
        self.served_child(child);
        self.children.get_mut(&child).expect("it has items").next()
    }

    pub fn peek(&self) -> Option<u32> {
        match self.first_child() {
            Some(child) => self.children[&child].peek(),
            None => self.items.front().copied(),
        }
    }

    /// Takes an item out, or none, as one that is served or not.
    pub fn take(&mut self, path: &[u8], item: Option<u32>, served: bool) {
        self.count -= usize::from(item.is_some());
        match path {
            [] => self.items.retain(|other| Some(*other) != item),
            [first, rest @ ..] => {
                if served {
                    self.served_child(*first);
                }
                self.children.entry(*first).or_default().take(rest, item, served);
            }
        }
    }

    /// Whether the largest counts lead to `path`, and the oldest item there is `item`.
    pub fn is_heaviest(&self, path: &[u8], item: u32) -> bool {
        match path {
            [] => self.items.front() == Some(&item),
            [first, rest @ ..] => {
                let most = self.children.values().map(|child| child.count).max().unwrap_or(0);
                self.children[first].count == most && self.children[first].is_heaviest(rest, item)
            }
        }
    }

    /// The deepest prefixes that hold at least `least`.
    pub fn ranges(&self, path: &mut Vec<u8>, least: usize, found: &mut BTreeMap<AddressRange, u32>) {
        let before = found.len();
        for (nibble, child) in self.children.iter().filter(|(_, child)| child.count >= least) {
            path.push(*nibble);
            child.ranges(path, least, found);
            path.pop();
        }
        if found.len() == before && self.count >= least && !path.is_empty() {
            found.insert(range(path), self.count as u32);
        }
    }

    /// How many children on the way to `path` have items, the product.
    pub fn filled(&self, path: &[u8], sets: &mut [BTreeSet<u8>]) {
        if let ([first, rest @ ..], [set, sets @ ..]) = (path, sets) {
            set.extend(self.children.iter().filter(|(_, child)| child.count > 0).map(|(nibble, _)| nibble));
            self.children[first].filled(rest, sets);
        }
    }
}

fn range(path: &[u8]) -> AddressRange {
    let nibble = |at: usize| u128::from(path.get(at).copied().unwrap_or(0));
    let address: IpAddr = match path[0] {
        0 => std::net::Ipv4Addr::from_bits((1..9).fold(0, |sum, at| sum << 4 | nibble(at) as u32)).into(),
        _ => std::net::Ipv6Addr::from_bits((1..33).fold(0, |sum, at| sum << 4 | nibble(at))).into(),
    };
    ClientOrigin::from(address).range(4 * (path.len() as u8 - 1))
}

//! The share of each range of addresses in the file of bodies: which range has to give way, and how many blocks of a
//! range cannot be taken back.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: addresses of clients. Must never: let one range
//! take all of the file with bodies that its servers do not read, or take from a range for one that holds more.

use std::collections::HashMap;
use std::net::IpAddr;

use conditioning::{AddressRange, ClientOrigin, Exempt, ItemKey, ShareLimits, Shares, Tree};

/// LIMIT: the part of the file that bodies beyond shares leave to others, once their servers have heard of them.
const NOT_LENT: u32 = 4;

/// How many blocks a body counts for once a server has heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentBlocks {
    client: IpAddr,
    blocks: u32,
    is_lent: bool,
}

/// See the file's head.
pub(super) struct Ranges<B> {
    /// Bodies that may be given up.
    unheard: Tree<B>,
    /// All of it.
    all: Tree<()>,
    /// Of what servers have heard of, what is within shares.
    shares: Shares,
    /// Blocks of all that servers have heard of.
    passed_on: u32,
    /// How many bodies of a range these are of. LIMIT: one for each block.
    bodies: HashMap<AddressRange, u32>,
    /// Blocks of the file.
    capacity: u32,
    /// How many bits the addresses of a range have in common, of IPv4 and IPv6.
    bits: [u8; 2],
}

impl<B> Ranges<B> {
    pub fn new(capacity: u32, limits: ShareLimits, exempt: Exempt) -> Self {
        Self {
            unheard: Tree::new(),
            all: Tree::new(),
            shares: Shares::new(limits, capacity, exempt),
            passed_on: 0,
            bodies: HashMap::new(),
            capacity,
            bits: [limits.v4[2].0, limits.v6[2].0],
        }
    }

    /// Counts a part of a body in; its names.
    pub fn insert(&mut self, client: IpAddr, body: B) -> [ItemKey; 2] {
        let origin = ClientOrigin::from(client);
        [self.unheard.insert(origin, body), self.all.insert(origin, ())]
    }

    /// Has a part of a body not be given up any more.
    pub fn keep(&mut self, [key, _]: [ItemKey; 2]) {
        self.unheard.remove(key);
    }

    /// Counts a part of a body out.
    pub fn remove(&mut self, [key, of_all]: [ItemKey; 2]) {
        self.unheard.remove(key);
        self.all.remove(of_all);
    }

    /// A body of the heaviest range that can give way to one of `client`; none if that is of this range itself.
    pub fn gives_way_to(&mut self, client: IpAddr) -> Option<&B> {
        let own = self.range(client.into());
        let (heaviest, _) = self.all.heaviest()?;
        if self.all.origin(heaviest).map(|origin| self.range(origin)) == Some(own) {
            return None;
        }
        let (key, _) = self.unheard.heaviest()?;
        if self.unheard.origin(key).map(|origin| self.range(origin)) == Some(own) {
            return None;
        }
        // Of equal ones, another is found the next time.
        self.unheard.evicted += 1;
        self.all.evicted += 1;
        self.unheard.get(key)
    }

    /// Lets a server hear of a body of so many blocks, if its range may have that: its share, beyond that what leaves a
    /// quarter of the file to others, and one body in any case.
    pub fn pass_on(&mut self, client: IpAddr, blocks: u32) -> Option<SentBlocks> {
        let range = self.range(client.into());
        let is_lent = self.shares.admit_all(client, blocks).is_err();
        let leaves_enough = self.passed_on + blocks <= self.capacity - self.capacity / NOT_LENT;
        if is_lent && !leaves_enough && self.bodies.contains_key(&range) {
            return None;
        }
        self.passed_on += blocks;
        *self.bodies.entry(range).or_default() += 1;
        Some(SentBlocks { client, blocks, is_lent })
    }

    /// Forgets a body that a server has heard of.
    pub fn forget(&mut self, SentBlocks { client, blocks, is_lent }: SentBlocks) {
        let range = self.range(client.into());
        self.passed_on -= blocks;
        if !is_lent {
            self.shares.release_all(client, blocks);
        }
        if let Some(bodies) = self.bodies.get_mut(&range) {
            *bodies -= 1;
            if *bodies == 0 {
                self.bodies.remove(&range);
            }
        }
    }

    fn range(&self, origin: ClientOrigin) -> AddressRange {
        origin.range(self.bits[usize::from(origin.is_v6())])
    }
}

//! Those whose range holds its share of the connections: they wait until it has room, and are refused after that.
//!
//! Runs in: gates, site workers, filters; pure. Sees: addresses of clients. Never: lets one in while its range is
//! full, or keeps one waiting while all of its ranges have room ([`Parked::unpark`] after each release).
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2, "Slow read prevention" ("delays or rejects").

use std::net::IpAddr;
use std::time::Instant;

use crate::address::AddressRange;
use crate::queue::{Priority, Queue, QueuedItem};
use crate::shares::Shares;
use crate::tree::ItemKey;

/// See the file's head.
#[derive(Debug)]
pub struct DelayQueue<T> {
    queue: Queue<T>,
    /// Those that had to wait.
    pub delayed_total: u64,
    /// Those that have waited in vain.
    pub over_share: u64,
}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> DelayQueue<T> {
    /// Nobody waits.
    pub fn new() -> Self {
        Self { queue: Queue::new(Priority::Recency), delayed_total: 0, over_share: 0 }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Lets one wait that was not admitted.
    pub fn push(&mut self, address: IpAddr, deadline: Instant, item: T) -> ItemKey {
        self.delayed_total += 1;
        self.queue.push(address, deadline, item)
    }

    /// After a release: the next that may go on, by recency; it is counted in. To be called until there is none.
    pub fn pop_admitted(&mut self, shares: &mut Shares) -> Option<QueuedItem<T>> {
        self.queue.pop_admitted(shares)
    }

    /// Notes that something of `address` was served without having waited here.
    pub fn served(&mut self, address: IpAddr) {
        self.queue.served(address);
    }

    /// Takes one out that has waited too long.
    pub fn expired(&mut self, now: Instant) -> Option<QueuedItem<T>> {
        let expired = self.queue.expired(now)?;
        self.over_share += 1;
        Some(expired)
    }

    /// When the next one will have waited too long.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        self.queue.next_deadline()
    }

    /// Takes the one called `key` out.
    pub fn remove(&mut self, key: ItemKey) -> Option<QueuedItem<T>> {
        self.queue.remove(key)
    }

    /// The ranges of most of those that wait.
    pub fn ranges(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        self.queue.ranges(at_most)
    }
}

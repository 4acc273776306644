//! A queue of connections or requests that wait for a worker, until they are served or their time is over.
//!
//! Runs in: gates (connections), site workers (requests for services), filters; pure. Sees: addresses of clients.
//! Never: loses one, gives one out twice, or forgets a deadline.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2, "Recency-based prioritization".

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use crate::address::{AddressRange, ClientOrigin};
use crate::shares::Shares;
use crate::tree::{ItemKey, Tree};

/// The order in which waiting items are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The least recently served range, at each level.
    Recency,
    /// The one that has waited longest.
    Fifo,
}

/// One that waits.
#[derive(Debug)]
pub struct QueuedItem<T> {
    /// The client.
    pub address: IpAddr,
    /// How long it may wait.
    pub deadline: Instant,
    /// Itself.
    pub item: T,
}

/// See the file's head.
#[derive(Debug)]
pub struct Queue<T> {
    tree: Tree<QueuedItem<T>>,
    /// Names of items that have left stay until they come to the front, or are too many.
    deadlines: BinaryHeap<Reverse<(Instant, ItemKey)>>,
    /// Only where that is the priority; as above.
    arrivals: Option<VecDeque<ItemKey>>,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new(priority: Priority) -> Self {
        let arrivals = match priority {
            Priority::Recency => None,
            Priority::Fifo => Some(VecDeque::new()),
        };
        Self { tree: Tree::new(), deadlines: BinaryHeap::new(), arrivals }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Lets `item` wait.
    pub fn push(&mut self, address: IpAddr, deadline: Instant, item: T) -> ItemKey {
        let key = self.tree.insert(address.into(), QueuedItem { address, deadline, item });
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.push_back(key);
        }
        self.note(deadline, key);
        key
    }

    /// Lets one that could not be served keep its place: it is the next again.
    pub fn requeue(&mut self, waiting: QueuedItem<T>) -> ItemKey {
        let deadline = waiting.deadline;
        let key = self.tree.insert_next(waiting.address.into(), waiting);
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.push_front(key);
        }
        self.note(deadline, key);
        key
    }

    /// The next to be served.
    pub fn pop(&mut self) -> Option<QueuedItem<T>> {
        let next = match &mut self.arrivals {
            None => return self.tree.next(),
            Some(arrivals) => loop {
                let key = arrivals.pop_front()?;
                if self.tree.get(key).is_some() {
                    break key;
                }
            },
        };
        self.tree.serve(next)
    }

    /// The next to be served of those whose ranges have room; it is counted in there.
    pub fn pop_admitted(&mut self, shares: &mut Shares) -> Option<QueuedItem<T>> {
        let admitted = match &self.arrivals {
            None => self.tree.next_where(|range| shares.has_room(range)),
            Some(arrivals) => {
                let fits =
                    |key: &&ItemKey| self.tree.get(**key).is_some_and(|found| shares.may(found.address));
                let key = *arrivals.iter().find(fits)?;
                self.tree.serve(key)
            }
        }?;
        // INVARIANT: there is room; what is exempt is not counted.
        let _ = shares.admit(admitted.address);
        Some(admitted)
    }

    /// Notes that something of `address` was served without having waited.
    pub fn served(&mut self, address: IpAddr) {
        if self.arrivals.is_none() {
            self.tree.served(ClientOrigin::from(address));
        }
    }

    /// Takes one out that has waited too long.
    pub fn expired(&mut self, now: Instant) -> Option<QueuedItem<T>> {
        if self.next_deadline()? > now {
            return None;
        }
        let Reverse((_, key)) = self.deadlines.pop()?;
        self.tree.remove(key)
    }

    /// When the next one will have waited too long.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        loop {
            let &Reverse((deadline, key)) = self.deadlines.peek()?;
            if self.tree.get(key).is_some() {
                return Some(deadline);
            }
            self.deadlines.pop();
        }
    }

    /// Takes the one called `key` out.
    pub fn remove(&mut self, key: ItemKey) -> Option<QueuedItem<T>> {
        self.tree.remove(key)
    }

    /// The one called `key`.
    pub fn get(&self, key: ItemKey) -> Option<&QueuedItem<T>> {
        self.tree.get(key)
    }

    /// The ranges of most of those that wait.
    pub fn ranges(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        self.tree.ranges(at_most)
    }

    fn note(&mut self, deadline: Instant, key: ItemKey) {
        self.deadlines.push(Reverse((deadline, key)));
        // LIMIT: as many names of items that have left as there are others, and a few: each is dropped at the cost
        // of one that was pushed.
        let most = 2 * self.tree.len() + 64;
        if self.deadlines.len() > most {
            self.deadlines.retain(|Reverse((_, key))| self.tree.get(*key).is_some());
        }
        if let Some(arrivals) = self.arrivals.as_mut().filter(|arrivals| arrivals.len() > most) {
            arrivals.retain(|key| self.tree.get(*key).is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_those_that_have_left_are_dropped_before_they_are_twice_as_many() {
        let (client, later) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        let mut queue = Queue::new(Priority::Fifo);
        for _ in 0..100 {
            queue.push(client, later, ());
        }
        let (mut most, mut least) = (0, usize::MAX);
        for _ in 0..1000 {
            let key = queue.push(client, later, ());
            let arrivals = queue.arrivals.as_ref().map(VecDeque::len);
            assert_eq!(arrivals, Some(queue.deadlines.len()));
            (most, least) = (most.max(queue.deadlines.len()), least.min(queue.deadlines.len()));
            queue.remove(key);
        }
        // With the one that was pushed last, 101 wait.
        assert_eq!((least, most), (101, 2 * 101 + 64));
    }
}

//! All connections that the worker holds, and which of them goes when others need its place.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the addresses of clients, of which one may have
//! many. Must never: end a connection on which a request is being answered; cost anything per request.
//!
//! A connection takes its seat, once, when it first has to wait; most that bring one request never do. While it waits
//! for the next head, it is idle. When the worker is nearly full, the oldest idle connection of the address range that
//! holds most of them goes (Park and Pai, *Connection Conditioning*, NSDI 2006). Finding one that is busy takes it out
//! of the tree, and it comes back when it waits again: no state changes in the tree with each request, and a search
//! pays only for what was put in.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Waker};

use conditioning::{AddressRange, ItemKey, Tree};

/// LIMIT: places kept free for connections on their way: an eighth of all, and at most what one gate may have sent
/// without waiting for us (`worker::inlet`).
const RESERVE_MAX: u32 = 64;

/// All seats of a worker.
pub(crate) struct IdlePool {
    /// How many connections may be here before idle ones have to go.
    comfortable: u32,
    /// Those that are here.
    here: Cell<u32>,
    /// Those of them that have been asked to go.
    leaving: Cell<u32>,
    /// Those of them that wait for a head.
    idle: Cell<u32>,
    evicted: Cell<u64>,
    tree: RefCell<Tree<Rc<IdleEntry>>>,
}

/// The seat of one connection.
struct IdleEntry {
    idle: Cell<bool>,
    must_go: Cell<bool>,
    /// Its place in the tree.
    key: Cell<Option<ItemKey>>,
    waker: RefCell<Option<Waker>>,
}

/// A connection that is here; it leaves when dropped.
pub(crate) struct IdleSlot<'a> {
    idle_pool: &'a IdlePool,
    peer: IpAddr,
    entry: Option<Rc<IdleEntry>>,
}

impl IdlePool {
    /// Room for `connections`.
    pub fn new(connections: u32) -> Self {
        Self {
            comfortable: connections - (connections / 8).min(RESERVE_MAX),
            here: Cell::new(0),
            leaving: Cell::new(0),
            idle: Cell::new(0),
            evicted: Cell::new(0),
            tree: RefCell::new(Tree::remembering(0)),
        }
    }

    /// A connection has come.
    pub fn enter(&self, peer: IpAddr) -> IdleSlot<'_> {
        self.here.set(self.here.get() + 1);
        self.make_room();
        IdleSlot { idle_pool: self, peer, entry: None }
    }

    /// How many connections were asked to go.
    pub fn evicted(&self) -> u64 {
        self.evicted.get()
    }

    /// How many connections wait for a head.
    pub fn idle(&self) -> u32 {
        self.idle.get()
    }

    /// The address ranges that have most seats.
    pub fn ranges(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        self.tree.borrow().ranges(at_most)
    }

    /// Asks an idle connection to go, if the worker is nearly full and there is one.
    fn make_room(&self) {
        if self.here.get() - self.leaving.get() <= self.comfortable {
            return;
        }
        let mut tree = self.tree.borrow_mut();
        while let Some(entry) = tree.remove_heaviest() {
            entry.key.set(None);
            if entry.idle.get() {
                entry.must_go.set(true);
                self.leaving.set(self.leaving.get() + 1);
                self.evicted.set(self.evicted.get() + 1);
                if let Some(waker) = entry.waker.take() {
                    waker.wake();
                }
                return;
            }
        }
    }
}

impl IdleSlot<'_> {
    /// Takes a seat, if this one has none.
    pub fn register(&mut self) {
        if self.entry.is_none() {
            let entry = Rc::new(IdleEntry {
                idle: Cell::new(false),
                must_go: Cell::new(false),
                key: Cell::new(None),
                waker: RefCell::new(None),
            });
            self.place(&entry);
            self.entry = Some(entry);
        }
    }

    fn place(&self, entry: &Rc<IdleEntry>) {
        entry.key.set(Some(self.idle_pool.tree.borrow_mut().insert(self.peer.into(), entry.clone())));
    }

    /// Waits for a head from now on.
    pub fn mark_idle(&mut self) {
        self.register();
        let Some(entry) = &self.entry else { return };
        entry.idle.set(true);
        self.idle_pool.idle.set(self.idle_pool.idle.get() + 1);
        if entry.key.get().is_none() && !entry.must_go.get() {
            self.place(entry);
        }
        self.idle_pool.make_room();
    }

    /// A head, or what follows, is being looked at.
    pub fn mark_busy(&self) {
        if let Some(entry) = &self.entry
            && entry.idle.replace(false)
        {
            self.idle_pool.idle.set(self.idle_pool.idle.get() - 1);
        }
    }

    /// Whether this connection must make room. It is served what it has asked for by then, and ends.
    pub fn must_go(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.must_go.get())
    }

    /// Has the task that polls this woken once the connection must make room.
    pub fn wake(&self, cx: &Context<'_>) {
        if let Some(entry) = &self.entry {
            let mut waker = entry.waker.borrow_mut();
            if waker.is_none() {
                *waker = Some(cx.waker().clone());
            }
        }
    }
}

impl Drop for IdleSlot<'_> {
    fn drop(&mut self) {
        self.mark_busy();
        if let Some(entry) = &self.entry {
            if let Some(key) = entry.key.take() {
                self.idle_pool.tree.borrow_mut().remove(key);
            }
            if entry.must_go.get() {
                self.idle_pool.leaving.set(self.idle_pool.leaving.get() - 1);
            }
        }
        self.idle_pool.here.set(self.idle_pool.here.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resting(idle_pool: &IdlePool, address: [u8; 4]) -> IdleSlot<'_> {
        let mut slot = idle_pool.enter(address.into());
        slot.mark_idle();
        slot
    }

    #[test]
    fn the_oldest_idle_of_the_heaviest_range_goes() {
        let idle_pool = IdlePool::new(7);
        let lone = resting(&idle_pool, [10, 0, 0, 1]);
        let mut many: Vec<_> = (0..6).map(|last| resting(&idle_pool, [192, 0, 2, last % 2])).collect();
        assert_eq!((idle_pool.idle(), idle_pool.evicted()), (7, 0));
        let _new = idle_pool.enter([198, 51, 100, 1].into());
        assert_eq!(idle_pool.evicted(), 1);
        assert!(!lone.must_go() && many[0].must_go());
        // One goes for each that comes.
        many.remove(0);
        let _newer = idle_pool.enter([198, 51, 100, 1].into());
        assert_eq!(many.iter().filter(|slot| slot.must_go()).count(), 1);
        assert!(!lone.must_go());
    }

    #[test]
    fn the_busy_stay_and_come_back() {
        let idle_pool = IdlePool::new(2);
        let mut busy = resting(&idle_pool, [192, 0, 2, 1]);
        busy.mark_busy();
        let _other = idle_pool.enter([192, 0, 2, 1].into());
        let _third = idle_pool.enter([192, 0, 2, 1].into());
        assert_eq!(idle_pool.evicted(), 0);
        // Nobody is idle, so the first that is has to go.
        busy.mark_idle();
        assert_eq!(idle_pool.evicted(), 1);
        assert!(busy.must_go());
    }

    #[test]
    fn nothing_is_left_of_those_who_left() {
        let idle_pool = IdlePool::new(3);
        for round in 0..100_u8 {
            let _slots: Vec<_> = (0..8).map(|last| resting(&idle_pool, [round, 1, 2, last])).collect();
        }
        assert_eq!((idle_pool.here.get(), idle_pool.leaving.get(), idle_pool.idle()), (0, 0, 0));
        assert!(idle_pool.tree.borrow().is_empty());
    }
}

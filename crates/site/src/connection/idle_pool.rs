//! Who is here: every connection that the worker holds, and which of them goes when others need its place.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the addresses of clients, of which one may have
//! many. Must never: end a connection on which a request is being answered; cost anything per request.
//!
//! A connection takes its seat, once, when it first has to wait; most that bring one request never do. While it waits
//! for the next head, it is idle. When the worker is nearly full, the oldest idle connection of the address range
//! that holds most of them goes (seed 001; rows D4, D5). Finding one that is busy takes it out of the tree, and it
//! comes back when it waits again: no state changes in the tree with each request, and a search pays only for what
//! was put in.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Waker};

use conditioning::{Key, Range, Tree};

/// LIMIT: places kept free for connections on their way: an eighth of all, and at most what one gate may have sent
/// without waiting for us (`worker::inlet`).
const RESERVE_MAX: u32 = 64;

/// All seats of a worker.
pub(crate) struct Seats {
    /// How many connections may be here before idle ones have to go.
    comfortable: u32,
    /// Those that are here.
    here: Cell<u32>,
    /// Those of them that have been asked to go.
    leaving: Cell<u32>,
    /// Those of them that wait for a head.
    idle: Cell<u32>,
    evicted: Cell<u64>,
    tree: RefCell<Tree<Rc<Seat>>>,
}

/// The seat of one connection.
struct Seat {
    idle: Cell<bool>,
    must_go: Cell<bool>,
    /// Its place in the tree.
    key: Cell<Option<Key>>,
    waker: RefCell<Option<Waker>>,
}

/// A connection that is here; it leaves when dropped.
pub(crate) struct Guest<'a> {
    seats: &'a Seats,
    peer: IpAddr,
    seat: Option<Rc<Seat>>,
}

impl Seats {
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
    pub fn enter(&self, peer: IpAddr) -> Guest<'_> {
        self.here.set(self.here.get() + 1);
        self.make_room();
        Guest { seats: self, peer, seat: None }
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
    pub fn ranges(&self, at_most: usize) -> Vec<(Range, u32)> {
        self.tree.borrow().ranges(at_most)
    }

    /// Asks an idle connection to go, if the worker is nearly full and there is one.
    fn make_room(&self) {
        if self.here.get() - self.leaving.get() <= self.comfortable {
            return;
        }
        let mut tree = self.tree.borrow_mut();
        while let Some(seat) = tree.remove_heaviest() {
            seat.key.set(None);
            if seat.idle.get() {
                seat.must_go.set(true);
                self.leaving.set(self.leaving.get() + 1);
                self.evicted.set(self.evicted.get() + 1);
                if let Some(waker) = seat.waker.take() {
                    waker.wake();
                }
                return;
            }
        }
    }
}

impl Guest<'_> {
    /// Takes a seat, if this one has none.
    pub fn sit(&mut self) {
        if self.seat.is_none() {
            let seat = Rc::new(Seat {
                idle: Cell::new(false),
                must_go: Cell::new(false),
                key: Cell::new(None),
                waker: RefCell::new(None),
            });
            self.place(&seat);
            self.seat = Some(seat);
        }
    }

    fn place(&self, seat: &Rc<Seat>) {
        seat.key.set(Some(self.seats.tree.borrow_mut().insert(self.peer.into(), seat.clone())));
    }

    /// Waits for a head from now on.
    pub fn rest(&mut self) {
        self.sit();
        let Some(seat) = &self.seat else { return };
        seat.idle.set(true);
        self.seats.idle.set(self.seats.idle.get() + 1);
        if seat.key.get().is_none() && !seat.must_go.get() {
            self.place(seat);
        }
        self.seats.make_room();
    }

    /// A head, or what follows, is being looked at.
    pub fn rise(&self) {
        if let Some(seat) = &self.seat
            && seat.idle.replace(false)
        {
            self.seats.idle.set(self.seats.idle.get() - 1);
        }
    }

    /// Whether this connection must make room. It is served what it has asked for by then, and ends.
    pub fn must_go(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.must_go.get())
    }

    /// Has the task that polls this woken once the connection must make room.
    pub fn wake(&self, cx: &Context<'_>) {
        if let Some(seat) = &self.seat {
            let mut waker = seat.waker.borrow_mut();
            if waker.is_none() {
                *waker = Some(cx.waker().clone());
            }
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.rise();
        if let Some(seat) = &self.seat {
            if let Some(key) = seat.key.take() {
                self.seats.tree.borrow_mut().remove(key);
            }
            if seat.must_go.get() {
                self.seats.leaving.set(self.seats.leaving.get() - 1);
            }
        }
        self.seats.here.set(self.seats.here.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resting(seats: &Seats, address: [u8; 4]) -> Guest<'_> {
        let mut guest = seats.enter(address.into());
        guest.rest();
        guest
    }

    #[test]
    fn the_oldest_idle_of_the_heaviest_range_goes() {
        let seats = Seats::new(7);
        let lone = resting(&seats, [10, 0, 0, 1]);
        let mut many: Vec<_> = (0..6).map(|last| resting(&seats, [192, 0, 2, last % 2])).collect();
        assert_eq!((seats.idle(), seats.evicted()), (7, 0));
        let _new = seats.enter([198, 51, 100, 1].into());
        assert_eq!(seats.evicted(), 1);
        assert!(!lone.must_go() && many[0].must_go());
        // One goes for each that comes.
        many.remove(0);
        let _newer = seats.enter([198, 51, 100, 1].into());
        assert_eq!(many.iter().filter(|guest| guest.must_go()).count(), 1);
        assert!(!lone.must_go());
    }

    #[test]
    fn the_busy_stay_and_come_back() {
        let seats = Seats::new(2);
        let mut busy = resting(&seats, [192, 0, 2, 1]);
        busy.rise();
        let _other = seats.enter([192, 0, 2, 1].into());
        let _third = seats.enter([192, 0, 2, 1].into());
        assert_eq!(seats.evicted(), 0);
        // Nobody is idle, so the first that is has to go.
        busy.rest();
        assert_eq!(seats.evicted(), 1);
        assert!(busy.must_go());
    }

    #[test]
    fn nothing_is_left_of_those_who_left() {
        let seats = Seats::new(3);
        for round in 0..100_u8 {
            let _guests: Vec<_> = (0..8).map(|last| resting(&seats, [round, 1, 2, last])).collect();
        }
        assert_eq!((seats.here.get(), seats.leaving.get(), seats.idle()), (0, 0, 0));
        assert!(seats.tree.borrow().is_empty());
    }
}

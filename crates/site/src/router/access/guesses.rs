//! The turns of those whose password is to be verified: one at a time in the whole worker.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: addresses of clients. Must never: keep a place for
//! a client that has gone, or leave one waiting whose turn it is. Whose turn that is says [`conditioning::Guesses`].

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::ItemKey;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

/// LIMIT: requests that wait for a verification; for one more, the heaviest range gets a 503.
const WAITING_MAX: usize = 64;

/// All who wait.
pub struct Guesses {
    waiting: RefCell<conditioning::Guesses<(IpAddr, oneshot::Sender<Turn>)>>,
    /// Whether somebody has the turn.
    taken: Cell<bool>,
    /// A turn is over.
    over: Notify,
}

/// The turn; it is over when dropped, and what it took is charged unless the password was right.
pub(super) struct Turn {
    guesses: Rc<Guesses>,
    address: IpAddr,
    spent: Duration,
    right: bool,
}

/// One that waits; when dropped, it does not any more.
pub(super) struct Waiter<'a> {
    guesses: &'a Rc<Guesses>,
    address: IpAddr,
    key: ItemKey,
    turn: oneshot::Receiver<Turn>,
}

/// The outcome of a wait.
pub(super) enum TurnOutcome {
    /// It is its turn.
    Turn(Turn),
    /// A turn of another's is over: the same may have been verified.
    Other,
    /// It had to make room.
    Crowded,
}

impl Guesses {
    /// Nobody waits.
    pub fn new() -> Rc<Self> {
        let waiting = RefCell::new(conditioning::Guesses::new(WAITING_MAX));
        Rc::new(Self { waiting, taken: Cell::new(false), over: Notify::new() })
    }

    /// Lets a client at `address` wait.
    pub(super) fn wait(self: &Rc<Self>, address: IpAddr) -> Waiter<'_> {
        let (sender, turn) = oneshot::channel();
        // A request that has to leave learns so when its sender is dropped.
        let (key, _) = self.waiting.borrow_mut().wait(address, (address, sender));
        Waiter { guesses: self, address, key, turn }
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Gives the turn to the next one, if there is one.
    fn give(self: &Rc<Self>) {
        if self.taken.get() {
            return;
        }
        let next = self.waiting.borrow_mut().next(Instant::now());
        if let Some((address, sender)) = next {
            self.taken.set(true);
            let turn = Turn { guesses: self.clone(), address, spent: Duration::ZERO, right: false };
            // INVARIANT: the other end is there: a waiter takes this end out before.
            let _ = sender.send(turn);
        }
    }
}

impl Waiter<'_> {
    /// Waits for what comes first.
    pub async fn wait(&mut self) -> TurnOutcome {
        let over = self.guesses.over.notified();
        self.guesses.give();
        let now = Instant::now();
        let at = self.guesses.waiting.borrow().may_at(self.address).filter(|at| *at > now);
        tokio::select! {
            biased;
            turn = &mut self.turn => turn.map_or(TurnOutcome::Crowded, TurnOutcome::Turn),
            () = over => TurnOutcome::Other,
            () = sleep_until(at.unwrap_or(now).into()), if at.is_some() => TurnOutcome::Other,
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.guesses.waiting.borrow_mut().remove(self.key);
    }
}

impl Turn {
    /// Notes that the worker was kept busy for so long.
    pub fn spend(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Ends it: the password was right.
    pub fn right(mut self) {
        self.right = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let guesses = &self.guesses;
        // A client that goes before it has its answer has cost the same.
        if !self.right && !self.spent.is_zero() {
            guesses.waiting.borrow_mut().wrong(self.address, self.spent, Instant::now());
        }
        guesses.taken.set(false);
        guesses.over.notify_waiters();
        guesses.give();
    }
}

//! The clients that are connected, and which of them makes room for a new one.
//!
//! Runs in: the admin role. Sees: connections of any process that can reach the socket. Never: lets a client that is
//! silent, slow, or does not take its answer keep another one waiting, or drops one whose order is under way for that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};

/// The most clients at once.
///
/// LIMIT: administrators and monitoring. One that comes beyond that takes the place of the one that has been waited for
/// the longest; if the orders of all are under way, it waits for the end of one, at most 60 s.
const CLIENTS_MAX: usize = 64;

/// The most orders under way at once; further ones wait.
///
/// LIMIT: fewer than the 64 of a kind that the launcher keeps, so that it refuses none.
const COMMANDS_MAX: usize = 16;

/// All of them.
#[derive(Debug)]
pub(crate) struct Clients {
    count: Cell<usize>,
    /// Those that are waited for, the oldest first. Dropping one of these takes the client's place.
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<()>>>,
    next: Cell<u64>,
    /// A client has gone, or begins to be waited for.
    changed: Notify,
    commands: Semaphore,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            count: Cell::default(),
            waiting: RefCell::default(),
            next: Cell::default(),
            changed: Notify::new(),
            commands: Semaphore::new(COMMANDS_MAX),
        }
    }
}

/// A client's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct ClientSlot {
    clients: Rc<Clients>,
    number: u64,
}

impl Clients {
    /// A place for a new client, if need be that of another.
    pub(crate) async fn slot(self: Rc<Self>) -> ClientSlot {
        while self.count.get() == CLIENTS_MAX {
            drop(self.waiting.borrow_mut().pop_first());
            self.changed.notified().await;
        }
        self.count.set(self.count.get() + 1);
        let number = self.next.get();
        self.next.set(number + 1);
        ClientSlot { clients: self, number }
    }

    /// Ends all that are waited for, and waits until the others have their answers.
    pub(crate) async fn end(&self) {
        self.waiting.borrow_mut().clear();
        while self.count.get() != 0 {
            self.changed.notified().await;
        }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.clients.count.set(self.clients.count.get() - 1);
        self.clients.changed.notify_one();
    }
}

impl ClientSlot {
    /// Waits for the client, `None` if the place is given to another one before that.
    pub(crate) async fn waiting<T>(&self, client: impl Future<Output = T>) -> Option<T> {
        let (sender, evicted) = oneshot::channel();
        self.clients.waiting.borrow_mut().insert(self.number, sender);
        self.clients.changed.notify_one();
        let outcome = tokio::select! {
            // Bytes that the client has sent are read before it loses its place.
            biased;
            outcome = client => Some(outcome),
            _ = evicted => None,
        };
        self.clients.waiting.borrow_mut().remove(&self.number);
        outcome
    }

    /// Waits until the client's order may be given.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.clients.commands.acquire().await.ok()
    }
}

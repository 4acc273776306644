//! Connections on their way to the workers of one partition: credits, the queue of those that wait, deadlines.
//!
//! Runs in: gates (for every partition) and site workers (for their services). Sees: messages of workers, which
//! may be compromised. Never: sends without a credit; lets a worker's nonsense cost anyone else.
//!
//! Source: seed 001 (bundles); mechanisms.md C3, C6; architecture.md, "The life of a connection", 4.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::{Bundle, Bytes, FromWorker, ToWorker};

use crate::channel::{Channel, ChannelError};

/// LIMIT: credits that one worker may have given; a worker grants 64.
const CREDITS_MAX: u32 = 4096;
/// LIMIT: how many messages of one worker are heard before others get their turn; receiving what is there already
/// never waits, so a worker that sends without end would be heard without end.
const TURN: u64 = 32;
/// How much nonsense a worker may send before its channel is closed.
const NONSENSE_MAX: u32 = 100;

type Line = Channel<FromWorker, ToWorker>;

/// A connection to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Its descriptor.
    pub stream: OwnedFd,
    /// The client.
    pub peer: std::net::SocketAddr,
    /// The address of ours that it connected to.
    pub local: std::net::SocketAddr,
    /// Whether this process is at its other end.
    pub relayed: bool,
    /// Bytes that were read from it already.
    pub taken: Vec<u8>,
}

impl Outlet {
    fn may_be_sent(&self, held_max: usize) -> bool {
        self.credits.get() > 0 && !self.draining.get() && self.sent.borrow().len() < held_max
    }
}

/// What an owner of [`Outlets`] is told.
pub trait Owner {
    /// A worker has been sent a connection; it is out of our hands.
    fn delivered(&self);
    /// No worker took this connection in time, or too many wait already.
    fn undelivered(&self, outgoing: Outgoing);
    /// A worker hands this connection back: its next request is another partition's.
    fn handed_back(&self, stream: OwnedFd, taken: Vec<u8>);
    /// A worker retires or is gone: what was sent to it should not be used for new work.
    fn retiring(&self);
}

/// The workers of one partition, and the connections that wait for one.
pub struct Outlets {
    name: String,
    owner: Rc<dyn Owner>,
    workers: RefCell<Vec<Rc<Outlet>>>,
    queue: RefCell<VecDeque<(Instant, Outgoing)>>,
    wait_max: Duration,
    waiting_max: usize,
    /// LIMIT: connections that a worker may hold without saying that they have ended: as many as it may have at
    /// once, and the credits that it may have given. One that never says so gets no more, and takes no more memory.
    held_max: usize,
    next_id: Cell<u64>,
    sweeping: Cell<bool>,
}

struct Outlet {
    line: Line,
    credits: Cell<u32>,
    draining: Cell<bool>,
    sent: RefCell<HashSet<u64>>,
    nonsense: Cell<u32>,
}

impl Outlets {
    /// The way to the partition called `name`, whose connections wait at most `wait_max` for a worker.
    ///
    /// `connections` is how many its owner holds in all; half of them may wait for this partition, so that one
    /// whose workers are stuck leaves room for the others.
    pub fn new(
        name: impl Into<String>,
        wait_max: Duration,
        connections: u32,
        owner: Rc<dyn Owner>,
    ) -> Rc<Self> {
        Rc::new(Self {
            name: name.into(),
            owner,
            workers: RefCell::default(),
            queue: RefCell::default(),
            wait_max,
            waiting_max: connections as usize / 2,
            held_max: connections as usize + CREDITS_MAX as usize,
            next_id: Cell::new(0),
            sweeping: Cell::new(false),
        })
    }

    /// Adds a worker's channel.
    pub fn attach(self: &Rc<Self>, descriptor: OwnedFd) -> std::io::Result<()> {
        let worker = Rc::new(Outlet {
            line: Channel::new(descriptor)?,
            credits: Cell::new(0),
            draining: Cell::new(false),
            sent: RefCell::default(),
            nonsense: Cell::new(0),
        });
        // The newest first: during a relaunch the successor gets the work as soon as it can take it.
        self.workers.borrow_mut().insert(0, worker.clone());
        tokio::task::spawn_local(self.clone().listen(worker));
        Ok(())
    }

    /// Sends a connection to a worker that has granted a credit, or lets it wait for one.
    pub fn send(self: &Rc<Self>, outgoing: Outgoing) {
        if !self.queue.borrow().is_empty() {
            self.enqueue(outgoing);
            // Those who wait may do so although there are credits: the kernel refuses a descriptor when too many
            // are under way. No worker would call for them then.
            return self.serve_queue();
        }
        if let Err(outgoing) = self.try_send(outgoing) {
            self.enqueue(outgoing);
        }
    }

    fn enqueue(self: &Rc<Self>, outgoing: Outgoing) {
        if self.queue.borrow().len() >= self.waiting_max {
            return self.owner.undelivered(outgoing);
        }
        self.queue.borrow_mut().push_back((Instant::now() + self.wait_max, outgoing));
        if !self.sweeping.replace(true) {
            tokio::task::spawn_local(self.clone().sweep());
        }
    }

    /// Gives up on those that have waited too long; runs only while somebody waits.
    async fn sweep(self: Rc<Self>) {
        loop {
            let Some(first) = self.queue.borrow().front().map(|(deadline, _)| *deadline) else {
                break;
            };
            tokio::time::sleep_until(first.into()).await;
            loop {
                let mut queue = self.queue.borrow_mut();
                let Some((_, late)) = queue.pop_front_if(|(deadline, _)| *deadline <= Instant::now()) else {
                    break;
                };
                drop(queue);
                self.owner.undelivered(late);
            }
        }
        self.sweeping.set(false);
    }

    fn try_send(&self, mut outgoing: Outgoing) -> Result<(), Outgoing> {
        let workers = self.workers.borrow();
        for worker in workers.iter().filter(|worker| worker.may_be_sent(self.held_max)) {
            let id = self.next_id.get();
            let message = ToWorker::Connection {
                bundle: Bundle {
                    id,
                    peer: outgoing.peer,
                    local: outgoing.local,
                    relayed: outgoing.relayed,
                    taken: Bytes(std::mem::take(&mut outgoing.taken)),
                },
            };
            match worker.line.try_send(&message, Some(outgoing.stream.as_fd())) {
                Ok(()) => {
                    worker.credits.set(worker.credits.get() - 1);
                    worker.sent.borrow_mut().insert(id);
                    self.next_id.set(id + 1);
                    self.owner.delivered();
                    return Ok(());
                }
                // It is full, or gone, which `listen` will see; another may do.
                Err(_) => {
                    let ToWorker::Connection { bundle } = message;
                    outgoing.taken = bundle.taken.0;
                }
            }
        }
        Err(outgoing)
    }

    fn serve_queue(&self) {
        loop {
            let Some((deadline, outgoing)) = self.queue.borrow_mut().pop_front() else {
                return;
            };
            if let Err(outgoing) = self.try_send(outgoing) {
                self.queue.borrow_mut().push_front((deadline, outgoing));
                return;
            }
        }
    }

    /// Hears a worker until it is gone.
    async fn listen(self: Rc<Self>, worker: Rc<Outlet>) {
        for heard in 1_u64.. {
            if heard.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            match worker.line.receive().await {
                Ok(Some((message, descriptor))) => self.heard(&worker, message, descriptor),
                Ok(None) | Err(ChannelError::Io(_)) => break,
                Err(ChannelError::Malformed(_)) => self.nonsense(&worker, "a malformed message"),
            }
            if worker.nonsense.get() >= NONSENSE_MAX {
                eprintln!("error: {}: its worker sends nonsense; its channel is closed", self.name);
                break;
            }
        }
        self.workers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &worker));
        self.owner.retiring();
    }

    fn heard(&self, worker: &Outlet, message: FromWorker, descriptor: Option<OwnedFd>) {
        match (message, descriptor) {
            (FromWorker::Returns { credits, done }, None) => {
                let mut sent = worker.sent.borrow_mut();
                let unknown = done.iter().filter(|id| !sent.remove(id)).count();
                drop(sent);
                if unknown > 0 {
                    self.nonsense(worker, "the end of a connection that it does not hold");
                }
                let credits = worker.credits.get().saturating_add(credits.into());
                if credits > CREDITS_MAX {
                    self.nonsense(worker, "more credits than a worker may grant");
                }
                worker.credits.set(credits.min(CREDITS_MAX));
                self.serve_queue();
            }
            // Its number is not checked: it may be that of another source, which is gone. A worker can make up a
            // connection, as any client can; it is treated as one.
            (FromWorker::Back { taken, .. }, Some(stream)) => self.owner.handed_back(stream, taken.0),
            (FromWorker::Drain {}, None) => {
                worker.draining.set(true);
                worker.line.finish();
                self.owner.retiring();
            }
            _ => self.nonsense(worker, "a descriptor where none belongs, or none where one does"),
        }
    }

    fn nonsense(&self, worker: &Outlet, what: &str) {
        worker.nonsense.set(worker.nonsense.get() + 1);
        if worker.nonsense.get() == 1 {
            eprintln!("warning: {}: its worker sent {what}", self.name);
        }
    }
}

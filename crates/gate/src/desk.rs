//! What all connections of a gate share: whose each request is, the partitions, the counts.
//!
//! Runs in: the gate. Sees: hosts and paths of requests. Never: keeps anything of a connection that was passed on.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::Duration;

use request::head::Head;
use tokio::sync::Notify;
use worker::counters::Counters;
use worker::log::Log;
use worker::outlets::{Outgoing, Outlets, Owner};
use worker::routes::Routes;

use crate::answer::Refusal;
use crate::connection::{self, Connection};

/// The longest host name.
const HOST_BYTES_MAX: usize = request::target::HOST_BYTES_MAX;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request head.
    pub head_bytes: usize,
    /// How long a head may take to arrive.
    pub head_timeout: Duration,
    /// How long a connection waits for a worker.
    pub start_timeout: Duration,
    /// Connections that this gate holds at once.
    pub connections: u32,
}

/// Whose a request is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The partition that answers.
    pub partition: u16,
    /// The site in whose log it appears.
    pub site: u16,
}

/// One partition, as this gate sees it.
pub struct Partition {
    /// Its workers.
    pub outlets: Rc<Outlets>,
    /// Whether it is answered for with 500.
    pub broken: Cell<bool>,
}

/// What is told by the workers of a partition.
struct Callbacks {
    desk: RefCell<Weak<Desk>>,
    site: u16,
    /// Connections that its workers handed back and that are still here.
    shared: Rc<Cell<u32>>,
}

/// The place of one connection among those that the workers of its partition handed back.
pub struct Share(Rc<Cell<u32>>);

impl Share {
    fn new(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }

    /// Whether this partition's connections leave too little room for those of others.
    ///
    /// LIMIT: an eighth of what the gate may hold. Those that wait come from a worker that retires, and have
    /// nothing to lose but the time of a new connection.
    pub fn exceeds(&self, limits: &Limits) -> bool {
        self.0.get() > (limits.connections / 8).max(1)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The shared state of a gate.
pub struct Desk {
    /// What clients may take.
    pub limits: Limits,
    /// The log.
    pub log: Log,
    /// Where heads are looked at: bytes stay in the socket, so one place does for all connections.
    pub peeked: RefCell<Vec<u8>>,
    counters: Counters,
    /// By listener: its number, its address, and whose each request is that comes by it.
    tables: Vec<(u16, SocketAddr, Routes<Place>)>,
    partitions: RefCell<HashMap<u16, Rc<Partition>>>,
    callbacks: RefCell<Vec<Rc<Callbacks>>>,
    left: Notify,
}

impl Desk {
    /// A gate with these limits and, for now, no routes.
    pub fn new(limits: Limits, log: Log) -> Self {
        Self {
            limits,
            log,
            // One byte more than a head may have shows that it has too many.
            peeked: RefCell::new(vec![0; limits.head_bytes + 1]),
            counters: Counters::default(),
            tables: Vec::new(),
            partitions: RefCell::default(),
            callbacks: RefCell::default(),
            left: Notify::new(),
        }
    }

    /// Adds a listener, which has no routes yet.
    pub fn listener(&mut self, number: u16, address: SocketAddr) {
        self.tables.push((number, address, Routes::default()));
    }

    /// Adds a line to the table of a listener.
    pub fn route(&mut self, listener: u16, host: &str, path: &str, partition: u16, site: u16) {
        for (_, _, routes) in self.tables.iter_mut().filter(|(number, ..)| *number == listener) {
            routes.add(host, path, Place { partition, site });
        }
        let known = self.partitions.borrow().contains_key(&partition);
        if !known {
            let new = self.new_partition(format!("partition {partition} ({host}{path})"), site);
            self.partitions.borrow_mut().insert(partition, new);
        }
    }

    fn new_partition(&self, name: String, site: u16) -> Rc<Partition> {
        let callbacks = Rc::new(Callbacks { desk: RefCell::default(), site, shared: Rc::default() });
        self.callbacks.borrow_mut().push(callbacks.clone());
        let Limits { start_timeout, connections, .. } = self.limits;
        let outlets = Outlets::new(name, start_timeout, connections, callbacks);
        Rc::new(Partition { outlets, broken: Cell::new(false) })
    }

    /// Lets the partitions find the gate that they belong to.
    pub fn introduce(self: &Rc<Self>) {
        for callbacks in self.callbacks.borrow().iter() {
            *callbacks.desk.borrow_mut() = Rc::downgrade(self);
        }
    }

    /// The partition of this number. One that no route leads to is made up and never used.
    pub fn partition(&self, number: u16) -> Rc<Partition> {
        let made_up = || self.new_partition(format!("partition {number}"), wire::NO_PARTITION);
        self.partitions.borrow_mut().entry(number).or_insert_with(made_up).clone()
    }

    /// Whose a request is that came to the address `local`.
    pub fn place(&self, local: SocketAddr, head: &Head<'_>) -> Option<Place> {
        let covers = |address: &SocketAddr| {
            let any = address.ip().is_unspecified() && address.is_ipv4() == local.is_ipv4();
            address.port() == local.port() && (any || address.ip() == local.ip())
        };
        let (_, _, routes) = self.tables.iter().find(|(_, address, _)| covers(address))?;
        let mut lower = [0; HOST_BYTES_MAX];
        let lower = lower.get_mut(..head.host.len())?;
        lower.copy_from_slice(head.host);
        lower.make_ascii_lowercase();
        routes.find(lower, head.path).copied()
    }

    /// A connection has come.
    pub fn came(&self) {
        self.counters.connected();
    }

    /// A connection is passed on, answered or gone.
    pub fn went(&self) {
        self.counters.disconnected();
        self.left.notify_waiters();
    }

    /// A request was answered here.
    pub fn answered(&self) {
        self.counters.answered();
    }

    /// Connections that this gate holds itself.
    pub fn held(&self) -> u32 {
        self.counters.connections_now.get()
    }

    /// Waits until fewer than `count` connections are held.
    pub async fn fewer_than(&self, count: u32) {
        while self.held() >= count {
            self.left.notified().await;
        }
    }

    /// Waits until every connection is passed on, answered or gone.
    pub async fn empty(&self) {
        self.fewer_than(1).await;
    }

    /// What `bulkhead status` shows: connections here, those in workers' hands not counted twice.
    pub fn counters(&self) -> wire::Counters {
        self.counters.snapshot()
    }
}

impl Owner for Callbacks {
    fn undelivered(&self, outgoing: Outgoing) {
        if let Some(desk) = self.desk.borrow().upgrade() {
            connection::refuse_undelivered(&desk, outgoing, self.site, Refusal::Unavailable);
        }
    }

    fn delivered(&self) {
        if let Some(desk) = self.desk.borrow().upgrade() {
            desk.went();
        }
    }

    fn handed_back(&self, stream: OwnedFd, taken: Vec<u8>) {
        if let Some(desk) = self.desk.borrow().upgrade() {
            desk.came();
            Connection::handed_back(desk.clone(), stream, taken, Share::new(&self.shared));
        }
    }

    fn retiring(&self) {}
}

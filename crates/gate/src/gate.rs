//! The state that all connections of a gate share: the routes, the partitions, the policies, the counts.
//!
//! Runs in: the gate. Sees: hosts and paths of requests. Never: keeps anything of a connection that was passed on.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::Exempt;
use request::head;
use tokio::sync::Notify;
use wire::ChildToLauncher;
use worker::counters::{Counters, DropCounters};
use worker::dispatcher::{Dispatcher, GuardedConnections};
use worker::log::Log;
use worker::refused::Refusals;

use crate::chain::FilterChain;
use crate::connection::{BytesSource, GateConnection};
use crate::incomplete::{HeadStage, Incomplete};
use crate::listener::GateListener;
use crate::partition::Partition;
use crate::policies::Policies;
use crate::refusal::GateRefusal;
use crate::tables::Tables;

/// The limits of clients.
#[derive(Clone, Copy, Debug)]
pub struct GateLimits {
    /// Bytes of a request head.
    pub head_bytes: usize,
    /// How long a head may take to arrive.
    pub head_timeout: Duration,
    /// How long a connection waits for a worker.
    pub start_timeout: Duration,
    /// Connections that this gate holds at once.
    pub connections: u32,
}

/// The shared state of a gate.
pub struct Gate {
    /// The limits of clients.
    pub limits: GateLimits,
    /// The log.
    pub log: Log,
    /// Which refusals it has been told of.
    pub refusals: Refusals,
    /// Where heads are looked at: bytes stay in the socket, so one place does for all connections.
    pub peeked: RefCell<Vec<u8>>,
    /// Connections without a whole request.
    pub incomplete: Incomplete,
    /// How many connections and requests were dropped, by reason.
    pub drops: DropCounters,
    /// The connections that a guarded server's processes hold.
    pub guarded: Rc<GuardedConnections>,
    /// Networks whose clients are not banned for what fails to decrypt.
    pub tamper_exempt: RefCell<Exempt>,
    /// The listeners, and what is said of them.
    pub tables: RefCell<Tables>,
    policies: OnceCell<Policies>,
    counters: Counters,
    partitions: RefCell<HashMap<u16, Rc<Partition>>>,
    chain: RefCell<Option<Rc<FilterChain>>>,
    /// Says something to the launcher.
    launcher: OnceCell<Box<dyn Fn(ChildToLauncher)>>,
    /// Partitions that the launcher has been told of lately.
    used: RefCell<Vec<Rc<Cell<bool>>>>,
    left: Notify,
}

impl Gate {
    /// A gate with these limits and, for now, no policies and no routes; must be called inside the runtime.
    pub fn new(limits: GateLimits, log: Log) -> std::io::Result<Rc<Self>> {
        let incomplete = Incomplete::new(limits.head_timeout)?;
        Ok(Rc::new(Self {
            limits,
            log,
            refusals: Refusals::default(),
            // One byte more than a head may have shows that it has too many.
            peeked: RefCell::new(vec![0; limits.head_bytes.max(request::hello::HELLO_BYTES_MAX) + 1]),
            tamper_exempt: RefCell::default(),
            tables: RefCell::default(),
            incomplete,
            drops: DropCounters::default(),
            guarded: Rc::default(),
            policies: OnceCell::new(),
            counters: Counters::default(),
            partitions: RefCell::default(),
            chain: RefCell::default(),
            launcher: OnceCell::new(),
            used: RefCell::default(),
            left: Notify::new(),
        }))
    }

    /// Sets how something is said to the launcher, once.
    pub fn speak(&self, say: impl Fn(ChildToLauncher) + 'static) {
        let _ = self.launcher.set(Box::new(say));
    }

    /// Has the launcher know that this partition is in use, unless it has been told.
    pub fn note_used(&self, partition: u16, is_told: &Rc<Cell<bool>>) {
        if !is_told.replace(true) {
            self.used.borrow_mut().push(is_told.clone());
            self.launcher.get().into_iter().for_each(|say| say(ChildToLauncher::Used { partition }));
        }
    }

    /// Has the launcher be told anew of partitions that are in use.
    pub fn forget_used(&self) {
        self.used.borrow_mut().drain(..).for_each(|is_told| is_told.set(false));
    }

    /// Has the launcher know that a worker of this partition is wanted.
    pub fn want(&self, partition: u16) {
        self.launcher.get().into_iter().for_each(|say| say(ChildToLauncher::Wanted { partition }));
    }

    /// Sets the policies, once, before the first connection.
    pub fn adopt(&self, policies: Policies) {
        for partition in self.partitions.borrow().values() {
            policies.set_policy(&partition.dispatcher, self.limits.connections);
        }
        // The gate counts requests of clients that have a rate: each has to come here.
        if !policies.has_rate() && self.filters().is_none() {
            self.guarded.keep(self.limits.head_bytes);
        }
        self.incomplete.allow_silence(policies.first_byte_timeout.unwrap_or(self.limits.head_timeout));
        let _ = self.policies.set(policies);
    }

    /// The policies; none but the order by recency as long as none were set.
    pub fn policies(&self) -> &Policies {
        self.policies.get_or_init(|| Policies::new(None, conditioning::Exempt::default()))
    }

    /// Takes a listener out that nobody can connect to any more.
    pub fn unlisten(&self, listener: &Rc<GateListener>) {
        self.tables.borrow_mut().unlisten(listener);
    }

    /// The listener that an address of ours belongs to.
    pub fn listener(&self, local: SocketAddr) -> Option<Rc<GateListener>> {
        self.tables.borrow().listener(local).cloned()
    }

    /// Whether there is a listener on which more is done than HTTP/1.1.
    pub fn has_multiple_protocols(&self) -> bool {
        self.tables.borrow().has_multiple_protocols()
    }

    /// Whether there are filters which would never see a request of a connection that comes by `listener` and is not of
    /// HTTP/1.1.
    pub fn hides_from_filters(&self, listener: &GateListener) -> bool {
        self.filters().is_some() && !listener.unfiltered.get()
    }

    /// The partition of this number, which `new` makes if there is none.
    pub fn partition(&self, number: u16, new: impl FnOnce() -> Rc<Partition>) -> Rc<Partition> {
        let new = || {
            let partition = new();
            if let Some(policies) = self.policies.get() {
                policies.set_policy(&partition.dispatcher, self.limits.connections);
            }
            partition
        };
        self.partitions.borrow_mut().entry(number).or_insert_with(new).clone()
    }

    /// Forgets a partition.
    pub fn remove_partition(&self, number: u16) {
        // Not while it is borrowed: what waits is answered.
        let removed = self.partitions.borrow_mut().remove(&number);
        removed.into_iter().for_each(|partition| partition.remove());
    }

    /// The chain of filters, which `new` makes if there is none; every request goes through the chain from now on.
    pub fn chain(&self, new: impl FnOnce() -> FilterChain) -> Rc<FilterChain> {
        self.chain.borrow_mut().get_or_insert_with(|| Rc::new(new())).clone()
    }

    /// The chain of filters, if there is one.
    pub fn filters(&self) -> Option<Rc<FilterChain>> {
        self.chain.borrow().clone()
    }

    /// Has requests go to their partitions without filters from now on. Connections in the chain come back from it.
    pub fn remove_chain(&self) {
        // Not while it is borrowed: what waits for the chain is sent on.
        let removed = self.chain.borrow_mut().take();
        removed.into_iter().for_each(|chain| chain.end());
    }

    /// Does something with each way to processes of ours.
    pub fn each_dispatcher(&self, mut act: impl FnMut(&Dispatcher)) {
        self.partitions.borrow().values().for_each(|partition| act(&partition.dispatcher));
        self.filters().into_iter().for_each(|chain| act(chain.dispatcher()));
    }

    /// Counts a request that is answered here, against its client where that is due.
    pub fn refused(&self, connection: &GateConnection, refusal: GateRefusal, now: Instant) {
        self.drops.note(|shed| match refusal {
            GateRefusal::Head(head::HeadRefusal::Late) => shed.late_head += 1,
            GateRefusal::Head(_) => shed.malformed += 1,
            GateRefusal::TooMany | GateRefusal::TooManyThere => shed.over_rate += 1,
            GateRefusal::NotTls | GateRefusal::Unseen => shed.malformed += 1,
            GateRefusal::NoSuchSite | GateRefusal::Broken | GateRefusal::Redirect(_) => shed.admitted += 1,
            GateRefusal::NoRoom => shed.unavailable += 1,
            // The code that let it wait has counted it.
            GateRefusal::Unavailable => {}
        });
        let known = self.listener(connection.local).is_some_and(|listener| !listener.shared.get());
        if known && refusal.is_offence() {
            let client = connection.peer.ip();
            match &connection.source {
                BytesSource::Client => self.policies().offended(client, now),
                // SECURITY: what a worker hands back as read may be what another one has handed to it.
                BytesSource::Worker(partition) if connection.preread.is_empty() => {
                    partition.offended(self.policies(), client, now);
                }
                BytesSource::Worker(_) | BytesSource::Filter => {}
            }
        }
    }

    /// A connection is passed on, answered or gone.
    pub fn connection_closed(&self) {
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

    /// Whether there is room for one more connection, or some can be made by ending one without a whole request.
    pub fn has_room(&self) -> bool {
        self.held() < self.limits.connections || self.incomplete.len() > 0
    }

    /// A connection has come, for which there is room.
    pub fn connection_opened(&self) {
        if self.held() >= self.limits.connections {
            self.evict();
        }
        self.counters.connected();
    }

    /// Ends the oldest connection without a whole request of the heaviest branch of addresses; false if there is none.
    pub fn evict(&self) -> bool {
        let Some(held) = self.incomplete.leave_heaviest() else {
            return false;
        };
        if held.stage == HeadStage::Begun {
            // Bytes that nobody has read would make a reset of the end.
            held.connection.discard(&mut self.peeked.borrow_mut(), self.limits.head_bytes);
        }
        self.drops.note(|shed| shed.evicted += 1);
        self.connection_closed();
        true
    }

    /// Waits until there is room.
    pub async fn room(&self) {
        while !self.has_room() {
            self.left.notified().await;
        }
    }

    /// Waits until every connection is passed on, answered or gone.
    pub async fn empty(&self) {
        while self.held() > 0 {
            self.left.notified().await;
        }
    }

    /// Waits until every connection is passed on, answered or gone, and none can come: workers hand back what idles, to
    /// another gate from now on, and some of it may be on its way.
    pub async fn settle(&self) {
        self.empty().await;
        let partitions: Vec<_> = self.partitions.borrow().values().cloned().collect();
        for partition in partitions {
            partition.dispatcher.refuse().await;
        }
        self.empty().await;
    }

    /// The numbers of `bulkhead status`: connections here, those in workers' hands not counted twice.
    pub fn counters(&self) -> wire::Counters {
        self.counters.snapshot()
    }
}

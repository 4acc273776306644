//! What all connections of a gate share: whose each request is, the partitions, the policies, the counts.
//!
//! Runs in: the gate. Sees: hosts and paths of requests. Never: keeps anything of a connection that was passed on.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use conditioning::Exempt;
use request::head::{self, Head};
use tokio::sync::Notify;
use worker::counters::{Counters, DropCounters};
use worker::dispatcher::{Dispatcher, Guarded};
use worker::log::Log;
use worker::routes::Routes;

use crate::answer::Refusal;
use crate::chain::Chain;
use crate::incomplete::Incomplete;
use crate::partition::Partition;
use crate::policies::Policies;
use crate::proxy_protocol::Proxies;
use crate::tls::Protocol;

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
#[derive(Clone)]
pub struct RouteTarget {
    /// The partition that answers.
    pub partition: Rc<Partition>,
    /// The site in whose log it appears.
    pub site: u16,
}

/// One address that is listened on.
pub struct Listener {
    /// Its place in the configuration.
    pub number: u16,
    address: SocketAddr,
    /// Whose each request is that comes by it.
    routes: RefCell<Routes<RouteTarget>>,
    /// Whether the users of several clients may share one connection, so that its peer's address says nothing.
    pub shared: Cell<bool>,
    /// What is spoken on it.
    pub protocol: Cell<Protocol>,
    /// Whether connections on which filters see no requests may pass them by.
    pub unfiltered: Cell<bool>,
    /// Requests that are redirected to https, with the port there; 0 for those that are not.
    redirects: RefCell<Routes<u16>>,
    /// The first site that was named for it.
    first: RefCell<Option<RouteTarget>>,
    /// Who may say whose a connection is.
    pub proxies: Proxies,
}

impl Listener {
    fn covers(&self, local: SocketAddr) -> bool {
        let any = self.address.ip().is_unspecified() && self.address.is_ipv4() == local.is_ipv4();
        self.address.port() == local.port() && (any || self.address.ip() == local.ip())
    }

    /// Whose a request is.
    pub fn target(&self, head: &Head<'_>) -> Option<RouteTarget> {
        let mut lower = [0; HOST_BYTES_MAX];
        self.routes.borrow().find(lower_case(head.host, &mut lower)?, head.path).cloned()
    }

    /// The port at which there is https for a request, if it is to go there.
    pub fn redirect(&self, head: &Head<'_>) -> Option<u16> {
        let mut lower = [0; HOST_BYTES_MAX];
        let redirects = self.redirects.borrow();
        redirects.find(lower_case(head.host, &mut lower)?, head.path).copied().filter(|port| *port > 0)
    }

    /// Whose a connection is of which only the host is known; who names none gets the site of every host, or else the
    /// first.
    pub fn target_of_host(&self, host: &[u8]) -> Option<RouteTarget> {
        let found = self.routes.borrow().find(host, "/").cloned();
        found.or_else(|| self.first.borrow().clone().filter(|_| host.is_empty()))
    }

    /// Whose it is what names no host.
    pub fn default_target(&self) -> Option<RouteTarget> {
        self.routes.borrow().find(b"", "/").cloned()
    }
}

fn lower_case<'a>(host: &[u8], room: &'a mut [u8; HOST_BYTES_MAX]) -> Option<&'a [u8]> {
    let lower = room.get_mut(..host.len())?;
    lower.copy_from_slice(host);
    lower.make_ascii_lowercase();
    Some(lower)
}

/// The shared state of a gate.
pub struct Gate {
    /// Itself, for those who call it when something happens.
    pub me: Weak<Gate>,
    /// What clients may take.
    pub limits: Limits,
    /// The log.
    pub log: Log,
    /// Where heads are looked at: bytes stay in the socket, so one place does for all connections.
    pub peeked: RefCell<Vec<u8>>,
    /// Connections without a whole request.
    pub incomplete: Incomplete,
    /// What was shed, and why.
    pub drops: DropCounters,
    /// Who holds what of the connections that were sent to a guarded server.
    pub guarded: Rc<Guarded>,
    /// Networks whose clients are not banned for what fails to decrypt.
    pub tamper_exempt: RefCell<Exempt>,
    has_multiple_protocols: Cell<bool>,
    policies: OnceCell<Policies>,
    counters: Counters,
    listeners: RefCell<Vec<Rc<Listener>>>,
    partitions: RefCell<HashMap<u16, Rc<Partition>>>,
    chain: OnceCell<Chain>,
    left: Notify,
}

impl Gate {
    /// A gate with these limits and, for now, no policies and no routes; must be called inside the runtime.
    pub fn new(limits: Limits, log: Log) -> std::io::Result<Rc<Self>> {
        let incomplete = Incomplete::new(limits.head_timeout)?;
        Ok(Rc::new_cyclic(|me| Self {
            me: me.clone(),
            limits,
            log,
            // One byte more than a head may have shows that it has too many.
            peeked: RefCell::new(vec![0; limits.head_bytes.max(request::hello::HELLO_BYTES_MAX) + 1]),
            tamper_exempt: RefCell::default(),
            has_multiple_protocols: Cell::new(false),
            incomplete,
            drops: DropCounters::default(),
            guarded: Rc::default(),
            policies: OnceCell::new(),
            counters: Counters::default(),
            listeners: RefCell::default(),
            partitions: RefCell::default(),
            chain: OnceCell::new(),
            left: Notify::new(),
        }))
    }

    /// Sets the policies, once, before the first connection.
    pub fn adopt(&self, policies: Policies) {
        for partition in self.partitions.borrow().values() {
            policies.set_policy(&partition.dispatcher, self.limits.connections);
        }
        self.incomplete.allow_silence(policies.first_byte_timeout.unwrap_or(self.limits.head_timeout));
        let _ = self.policies.set(policies);
    }

    /// The policies; none but the order by recency as long as none were set.
    pub fn policies(&self) -> &Policies {
        self.policies.get_or_init(|| Policies::new(None, conditioning::Exempt::default()))
    }

    /// Adds a listener, which has no routes yet.
    pub fn listen(&self, number: u16, address: SocketAddr) -> Rc<Listener> {
        let listener = Rc::new(Listener {
            number,
            address,
            routes: RefCell::default(),
            shared: Cell::new(false),
            protocol: Cell::default(),
            unfiltered: Cell::default(),
            redirects: RefCell::default(),
            first: RefCell::default(),
            proxies: Proxies::default(),
        });
        self.listeners.borrow_mut().push(listener.clone());
        listener
    }

    /// Takes a listener out that nobody can connect to any more.
    pub fn unlisten(&self, listener: &Rc<Listener>) {
        self.listeners.borrow_mut().retain(|known| !Rc::ptr_eq(known, listener));
    }

    /// The listener that an address of ours belongs to.
    pub fn listener(&self, local: SocketAddr) -> Option<Rc<Listener>> {
        self.listeners.borrow().iter().find(|listener| listener.covers(local)).cloned()
    }

    /// Adds a line to the table of a listener.
    pub fn add_route(&self, listener: u16, host: &str, path: &str, partition: u16, site: u16) {
        let partition = self.new_partition(partition, &format!(" ({host}{path})"), site);
        // What is no site's is a guarded server's, also before any process of that has said so.
        partition.guarded.set(partition.guarded.get() || site == wire::NO_PARTITION);
        for listener in self.listeners.borrow().iter().filter(|known| known.number == listener) {
            let target = RouteTarget { partition: partition.clone(), site };
            if path == "/" {
                listener.first.borrow_mut().get_or_insert_with(|| target.clone());
            }
            listener.routes.borrow_mut().add(host, path, target);
        }
    }

    /// Sets what is spoken on a listener.
    pub fn set_protocol(&self, listener: u16, protocol: Protocol) {
        self.has_multiple_protocols.set(true);
        let listeners = self.listeners.borrow();
        listeners
            .iter()
            .filter(|known| known.number == listener)
            .for_each(|known| known.protocol.set(protocol));
    }

    /// Requests for `host` below `path` on a listener are redirected to https at `port`; not at all, if it is 0.
    pub fn redirect(&self, listener: u16, host: &str, path: &str, port: u16) {
        self.has_multiple_protocols.set(true);
        for listener in self.listeners.borrow().iter().filter(|known| known.number == listener) {
            listener.redirects.borrow_mut().add(host, path, port);
        }
    }

    /// Whether there is a listener on which more is done than HTTP/1.1.
    pub fn has_multiple_protocols(&self) -> bool {
        self.has_multiple_protocols.get()
    }

    /// The addresses of the clients of a listener say nothing.
    pub fn share_connections(&self, listener: u16) {
        let listeners = self.listeners.borrow();
        listeners.iter().filter(|known| known.number == listener).for_each(|known| known.shared.set(true));
    }

    /// Connections of a listener on which filters see no requests may pass them by.
    pub fn allow_unfiltered(&self, listener: u16) {
        let listeners = self.listeners.borrow();
        listeners
            .iter()
            .filter(|known| known.number == listener)
            .for_each(|known| known.unfiltered.set(true));
    }

    /// Whether there are filters which would never see a request of a connection that comes by `listener` and is not of
    /// HTTP/1.1.
    pub fn hides_from_filters(&self, listener: &Listener) -> bool {
        self.filters().is_some() && !listener.unfiltered.get()
    }

    /// Has connections on a listener begin with a header, which this network may send.
    pub fn trust_proxy(&self, listener: u16, network: conditioning::Network) {
        let listeners = self.listeners.borrow();
        listeners
            .iter()
            .filter(|known| known.number == listener)
            .for_each(|known| known.proxies.trust(network));
    }

    /// The partition of this number. One that no route leads to is made up and never used.
    pub fn partition(&self, number: u16) -> Rc<Partition> {
        self.new_partition(number, "", wire::NO_PARTITION)
    }

    fn new_partition(&self, number: u16, add_route: &str, site: u16) -> Rc<Partition> {
        let new = || {
            let partition = Partition::new(self, format!("partition {number}{add_route}"), site);
            if let Some(policies) = self.policies.get() {
                policies.set_policy(&partition.dispatcher, self.limits.connections);
            }
            partition
        };
        self.partitions.borrow_mut().entry(number).or_insert_with(new).clone()
    }

    /// The chain of filters, which every request goes through from now on.
    pub fn chain(&self) -> &Chain {
        self.chain.get_or_init(|| Chain::new(self))
    }

    /// The chain of filters, if there is one.
    pub fn filters(&self) -> Option<&Chain> {
        self.chain.get()
    }

    /// Does something with each way to processes of ours.
    pub fn each_dispatcher(&self, mut act: impl FnMut(&Dispatcher)) {
        self.partitions.borrow().values().for_each(|partition| act(&partition.dispatcher));
        self.filters().into_iter().for_each(|chain| act(chain.dispatcher()));
    }

    /// Counts a request that is answered here, against its client where that is due.
    pub fn refused(&self, peer: SocketAddr, local: SocketAddr, refusal: Refusal, now: Instant) {
        self.drops.note(|shed| match refusal {
            Refusal::Head(head::Refusal::Late) => shed.late_head += 1,
            Refusal::Head(_) | Refusal::Strange => shed.malformed += 1,
            Refusal::TooMany | Refusal::TooManyThere => shed.over_rate += 1,
            Refusal::NotTls | Refusal::Unseen => shed.malformed += 1,
            Refusal::NoSuchSite | Refusal::Broken | Refusal::Redirect(_) => shed.admitted += 1,
            // Whoever has let it wait has counted it.
            Refusal::Unavailable => {}
        });
        let known = self.listener(local).is_some_and(|listener| !listener.shared.get());
        if known && refusal.is_offence() {
            self.policies().offended(peer.ip(), now);
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
            self.incomplete.evict(self);
        }
        self.counters.connected();
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

    /// What `bulkhead status` shows: connections here, those in workers' hands not counted twice.
    pub fn counters(&self) -> wire::Counters {
        self.counters.snapshot()
    }
}

//! This worker's part in serving its connections: which requests are its own, its services, its log.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: hosts and paths of requests. Must never:
//! answer for another site.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use conditioning::{Exempt, IpNetwork, Priority, ShareLimits};
use request::path::NormalPath;
use wire::log::Level;
use wire::{ChildToLauncher, Conditioning, RouteTarget};
use worker::dispatcher::{setting, share_limits};
use worker::log::{Log, now_us};
use worker::receiver::Receiver;
use worker::refused::{LogLimiter, Refusals, RefusedRequest, Untold};
use worker::routes::Routes;

use crate::config::limits::ClientLimits;
use crate::context::rates::Rates;
use crate::http::access_record::AccessRecord;
use crate::http::conn_info::ConnInfo;
use crate::proxy::backends::Backends;
use crate::proxy::limit::{BackendId, ConcurrencyLimit, LimitRefusal, Permit, but_anybody};
use crate::proxy::service::{QueueLimits, ServiceProxy, Tell};
use crate::proxy::spool::Spool;
use crate::router::rules::Rules;

/// A line about a connection that failed under TLS.
struct TlsFailureLine<'a> {
    peer: SocketAddr,
    error: &'a rustls::Error,
    others: u64,
}

impl fmt::Display for TlsFailureLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS with {} failed: {}{}", self.peer.ip(), self.error, Untold(self.others))
    }
}

/// A worker's limit of the streams that it answers.
fn streams(connections: u32) -> ConcurrencyLimit {
    let limit = ConcurrencyLimit::new(connections);
    // LIMIT: as many as connections, each of which could ask for as much.
    limit.set(BackendId::Streams, connections);
    limit
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOwner {
    /// This worker's.
    Own,
    /// That of the site of this partition; this worker relays it if it came under TLS.
    Relayed(u16),
    /// Another's, or nobody's.
    Other,
}

impl RouteOwner {
    /// As the launcher says it.
    pub fn new(target: RouteTarget, partition: u16) -> Self {
        match target {
            RouteTarget::Files | RouteTarget::Service => Self::Own,
            RouteTarget::Relayed => Self::Relayed(partition),
            RouteTarget::Elsewhere => Self::Other,
        }
    }

    /// The partition of the site that the request is relayed to.
    pub(crate) fn partition(&self) -> Option<u16> {
        match *self {
            Self::Relayed(partition) => Some(partition),
            Self::Own | Self::Other => None,
        }
    }
}

/// The partitions that requests are relayed to.
fn relayed(routes: &Routes<RouteOwner>) -> Vec<u16> {
    routes.targets().filter_map(RouteOwner::partition).collect()
}

/// The launcher's settings for this worker.
pub struct WorkerState {
    /// Whose each request is.
    routes: RefCell<Routes<RouteOwner>>,
    limits: ClientLimits,
    /// In which order requests that wait for a service get their turn.
    priority: Priority,
    /// Requests a second of each client, any number if that is 0, and how many at once.
    rate: (u32, u32),
    pub(super) rates: Rates,
    /// The connections that come in.
    pub receiver: Rc<Receiver>,
    log: Log,
    /// Whether requests go through filters.
    pub filtered: bool,
    tls_failures: LogLimiter,
    refusals: Rc<Refusals>,
    pub(super) limit: ConcurrencyLimit,
    /// Streams of HTTP/2 that are answered.
    pub(super) streams: ConcurrencyLimit,
    shares: ShareLimits,
    exempt: Exempt,
    /// Ports of ours at which connections are of many clients.
    pub(super) shared_ports: Vec<u16>,
    /// Backends that had no place left.
    pub(super) full: RefCell<HashMap<BackendId, LogLimiter>>,
    /// Bodies that had none.
    pub(super) unkept: LogLimiter,
    /// Where bodies wait that are too long for memory.
    pub(super) spool: Spool,
    /// Where clients are named whose records fail to decrypt.
    tampered: Option<Box<dyn Fn(ChildToLauncher)>>,
    /// Says something to the launcher.
    tell: Tell,
    /// Servers behind the site.
    pub backends: Backends,
}

impl WorkerState {
    /// Has clients whose records fail to decrypt named to the launcher; where it has no room for that, another time.
    pub fn on_tampered(&mut self, name: impl Fn(ChildToLauncher) + 'static) {
        self.tampered = Some(Box::new(name));
    }

    /// A worker with these limits and, for now, nothing of its own.
    pub fn new(limits: ClientLimits, receiver: Rc<Receiver>, log: Log) -> Self {
        Self {
            routes: RefCell::default(),
            priority: Priority::Recency,
            rate: (0, 0),
            rates: Rates::new((0, 0), Exempt::default()),
            receiver,
            log,
            filtered: false,
            tls_failures: LogLimiter::default(),
            refusals: Rc::default(),
            limit: ConcurrencyLimit::new(limits.connections),
            streams: streams(limits.connections),
            shares: ShareLimits::default(),
            exempt: Exempt::default(),
            shared_ports: Vec::new(),
            full: RefCell::default(),
            unkept: LogLimiter::default(),
            spool: Spool::new(None, 0, ShareLimits::default(), Exempt::default()),
            tampered: None,
            tell: Rc::new(|_| {}),
            backends: Backends::default(),
            limits,
        }
    }

    /// Takes over the policies.
    pub fn condition(&mut self, policies: &Conditioning) {
        self.limits.set_min_rates(policies.body_min_rate, policies.response_min_rate);
        self.limits.checks = setting(policies.checks);
        self.rate = (policies.rate_max, policies.rate_burst);
        self.priority = if policies.recency { Priority::Recency } else { Priority::Fifo };
        self.shares = share_limits(policies);
        self.set_policy();
    }

    /// Counts neither shares nor requests for the clients of `network`.
    pub fn exempt(&mut self, network: IpNetwork) {
        self.exempt.0.push(network);
        self.set_policy();
    }

    /// Counts neither shares nor requests of one client for what comes in at `port`: its clients' addresses are not
    /// known.
    pub fn share_port(&mut self, port: u16) {
        self.shared_ports.push(port);
    }

    fn set_policy(&mut self) {
        self.rates = Rates::new(self.rate, self.exempt.clone());
        for limit in [&self.limit, &self.streams] {
            limit.set_policy(self.priority, self.shares, self.exempt.clone());
        }
    }

    /// Adds a line of the table of requests that are this worker's, or others', to answer.
    pub fn route(&mut self, host: &str, path: &str, owner: RouteOwner) {
        self.routes.get_mut().add(host, path, owner);
    }

    /// Puts another table in its place. Connections that are under way see the new one with their next request.
    pub fn replace_routes(&self, routes: Routes<RouteOwner>) {
        let now = relayed(&routes);
        let before = relayed(&self.routes.replace(routes));
        self.backends.relays.renew(&before, &now, |partition| self.relay_way(partition));
    }

    /// Adds a worker of another site, to which requests are relayed.
    pub fn attach_site(&self, partition: u16, channel: OwnedFd) -> std::io::Result<()> {
        self.backends.relays.attach(partition, channel, || self.relay_way(partition))
    }

    fn relay_way(&self, partition: u16) -> ServiceProxy {
        ServiceProxy::new("site below our host", partition, self.waits())
    }

    /// How requests wait for workers of others.
    fn waits(&self) -> QueueLimits {
        let ClientLimits { start_timeout, connections, .. } = self.limits;
        QueueLimits { max: start_timeout, connections, priority: self.priority, tell: self.tell.clone() }
    }

    /// Sets how the launcher is told which partitions lack a worker, and which are in use.
    pub fn tell_by(&mut self, tell: impl Fn(ChildToLauncher) + 'static) {
        self.tell = Rc::new(tell);
    }

    /// Takes notice of a service, or of a site that requests are relayed to, that is broken, or is no more.
    pub fn set_broken(&self, partition: u16, broken: bool) {
        self.backends.service(partition).into_iter().for_each(|service| service.set_broken(broken));
        self.backends.relays.way(partition).into_iter().for_each(|way| way.set_broken(broken));
    }

    /// Takes notice that there is no room for a worker of one of these.
    pub fn set_without_room(&self, partition: u16) {
        self.backends.service(partition).into_iter().for_each(|service| service.set_without_room());
        self.backends.relays.way(partition).into_iter().for_each(|way| way.set_without_room());
    }

    /// Makes the ways to all backends, now that the rules are known.
    pub(super) fn begin(&mut self, rules: &Rules) {
        let waits = self.waits();
        self.backends.begin(rules, &waits, &self.log);
        let relayed = relayed(&self.routes.borrow());
        self.backends.relays.renew(&[], &relayed, |partition| self.relay_way(partition));
    }

    /// Takes over the file in which so many bytes of bodies may wait.
    pub(crate) fn keep_bodies_in(&mut self, file: Option<OwnedFd>, bytes: u64) {
        self.spool = Spool::new(file, bytes, self.shares, but_anybody(self.exempt.clone()));
    }

    /// Has the file be shorter again when bodies need it no more; goes on for ever.
    pub(crate) async fn cut_bodies_file(&self) {
        self.spool.cut_unneeded().await;
    }

    /// Lets `backend` have so many requests at once; 0 for its share of the places.
    pub(crate) fn limit(&mut self, backend: BackendId, requests: u32) {
        if requests > 0 {
            self.limit.set(backend, requests);
        }
    }

    /// When many requests were under way and few are left.
    pub(crate) async fn requests_fall(&self) {
        let (one, other) = (self.limit.fallen(), self.streams.fallen());
        tokio::select! {
            () = one.notified() => {}
            () = other.notified() => {}
        }
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

impl WorkerState {
    /// Whose a request is to answer. `host` is in whatever case, without port and final dot, and empty if HTTP/1.0
    /// named none; `path` is as sent.
    pub(crate) fn owner(&self, conn: &ConnInfo, host: &[u8], path: &str) -> RouteOwner {
        match self.routes.borrow().find(host, path).copied() {
            // On a connection in plaintext a gate finds that site.
            Some(RouteOwner::Relayed(_)) if !conn.tls || conn.relayed.is_some() => RouteOwner::Other,
            found => found.unwrap_or(RouteOwner::Other),
        }
    }

    /// Whether a request that a backend could take for one of this path would still be this worker's.
    pub(crate) fn owns_reading(&self, host: &[u8], path: &NormalPath<'_>) -> bool {
        self.routes.borrow().find_normal(host, path) == Some(&RouteOwner::Own)
    }

    /// Whether a client may make one more request of this site now; counts the request.
    pub(crate) fn allows(&self, conn: &ConnInfo, now: Instant) -> bool {
        let known = || !self.shared_ports.contains(&conn.local.port());
        !self.rates.limit() || !known() || self.rates.allow(conn.peer.ip(), now, &self.receiver)
    }

    /// Logs a request that was refused.
    pub(crate) fn refused(&self, refused: RefusedRequest<'_>) {
        self.refusals.note(&self.log, refused);
    }

    /// The log and its counters, for a refusal that is logged only when an answer breaks off.
    pub(crate) fn refusals(&self) -> (Log, Rc<Refusals>) {
        (self.log.clone(), self.refusals.clone())
    }

    /// A place for one more stream of HTTP/2, for as long as the stream is answered.
    pub(crate) fn admit_stream(&self, conn: ConnInfo) -> Result<Permit, LimitRefusal> {
        self.streams.try_acquire(BackendId::Streams, self.client(conn))
    }

    /// Logs an answered request.
    pub(crate) fn record(&self, access: &AccessRecord<'_>) {
        self.receiver.counters.answered();
        self.log.access(&wire::log::Access {
            time_us: now_us(),
            duration_us: u32::try_from(access.duration_us).unwrap_or(u32::MAX),
            site: self.log.site(),
            peer: access.conn.peer,
            status: access.status,
            body_bytes: access.body_bytes,
            version: match access.method {
                "" => u8::MAX,
                _ => access.conn.relayed.unwrap_or(access.minor),
            },
            method: access.method.as_bytes(),
            target: access.target.as_bytes(),
            host: access.host,
            referer: access.referer,
            agent: access.user_agent,
        });
    }

    /// Logs a connection that failed under TLS, in the handshake or after it. A record that could not be decrypted was
    /// changed or made up by somebody: the gates are told of its client.
    pub(crate) fn tls_failed(&self, peer: SocketAddr, error: &rustls::Error) {
        if let Some(others) = self.tls_failures.tell(Instant::now()) {
            self.log.event(Level::Warning, TlsFailureLine { peer, error, others });
        }
        if let (rustls::Error::DecryptError, Some(name)) = (error, &self.tampered) {
            let (address_high, address_low) = wire::halves(peer.ip());
            name(ChildToLauncher::Tampered { address_high, address_low });
        }
    }

    /// The limits.
    pub fn limits(&self) -> &ClientLimits {
        &self.limits
    }
}

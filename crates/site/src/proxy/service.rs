//! Requests on their way to a service of the site, or to another site (`relay`), and the responses on their way back.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and responses of services,
//! which may be compromised. Must never: let a client speak in the name of the site worker.
//!
//! A request travels on one end of a socket pair whose other end went to the service in a bundle, as a client's
//! connection would; such pairs are kept for further requests.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::{AddressRange, Priority};
use http::header::HeaderValue;
use http::{Request, StatusCode};
use sys::foreign::Foreign;
use wire::{ChildToLauncher, Shed};
use worker::dispatcher::{Dispatcher, Outgoing, Owner};

use crate::http::body::BoundedBody;
use crate::http::conn_info::ConnInfo;
use crate::proxy::backend::KeepAlive;
use crate::proxy::headers;
use crate::proxy::http::Peer;
use crate::proxy::pool::{Bounds, Pool};
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::Timeouts;

/// LIMIT: pairs that are kept for further requests: as many as a busy worker is sent at once. With hundreds of clients
/// a turn of the loop ends as many requests before it begins the next ones, and a pair costs more than a request.
const IDLE_MAX: usize = 512;

/// LIMIT: how long after it was made a pair is used for further requests. Whether a worker keeps up, and which one has
/// least to do, is found out with new pairs; and a worker to which pairs lead that nobody uses is not idle.
const PAIR_AGE: Duration = Duration::from_secs(1);

/// With what requests are answered for which there is no room for a worker.
const NO_ROOM: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// The way to one service, or to one other site.
pub struct ServiceProxy {
    /// Where new pairs go.
    dispatcher: Rc<Dispatcher>,
    pairs: Rc<ServicePool>,
    /// With which status requests are answered for which no worker will come.
    refused: Cell<Option<StatusCode>>,
}

/// LIMIT: how often the launcher is told that a partition is in use.
const USED_EVERY: Duration = Duration::from_secs(10);

/// Says something to the launcher.
pub type Tell = Rc<dyn Fn(ChildToLauncher)>;

/// How requests wait for a worker.
#[derive(Clone)]
pub(crate) struct QueueLimits {
    /// For how long at most.
    pub max: Duration,
    /// Of how many connections.
    pub connections: u32,
    /// In which order.
    pub priority: Priority,
    /// How the launcher is told that there is no worker, or that it is in use.
    pub tell: Tell,
}

/// The pairs that lead to one service.
struct ServicePool {
    partition: u16,
    tell: Tell,
    /// When the launcher was told that the partition is in use.
    told: Cell<Option<Instant>>,
    pool: Pool<BackendStream>,
    /// Counts pairs that no worker took; each request watches whether its own is among them.
    undelivered: Cell<u64>,
}

impl Owner for ServicePool {
    /// Dropping the service's end makes the request that waits on ours fail at once.
    fn undelivered(&self, _outgoing: Outgoing) {
        self.undelivered.set(self.undelivered.get() + 1);
    }

    fn delivered(&self) {
        if self.told.get().is_none_or(|told| told.elapsed() > USED_EVERY) {
            self.told.set(Some(Instant::now()));
            (self.tell)(ChildToLauncher::Used { partition: self.partition });
        }
    }

    /// A service has no connections of clients from us, so what it hands back is its own invention.
    fn handed_back(&self, _stream: Foreign, _preread: Vec<u8>, _client: Option<SocketAddr>) {}

    fn wanted(&self) {
        (self.tell)(ChildToLauncher::Wanted { partition: self.partition });
    }

    /// Closes pairs that nobody uses, which gives their places to those that wait.
    fn full(&self, waiting: usize) {
        self.pool.close(waiting);
    }

    /// Pairs that nobody uses are closed, which lets a worker go, and no other from before is kept. Of several workers,
    /// each request is for the one that has least to do, which a pair from before would not ask.
    fn workers_changed(&self, count: usize) {
        self.pool.clear();
        self.pool.allow(count <= 1);
    }
}

impl ServiceProxy {
    /// The way to the workers of `partition`, which messages call `name`.
    pub(crate) fn new(name: &str, partition: u16, waits: QueueLimits) -> Self {
        let QueueLimits { max, connections, priority, tell } = waits;
        let pool = Pool::new(Bounds { connections: IDLE_MAX, idle: None });
        let (told, undelivered) = (Cell::default(), Cell::default());
        let pairs = Rc::new(ServicePool { partition, tell, told, pool, undelivered });
        let dispatcher = Dispatcher::new(name, max, connections, pairs.clone());
        // While others wait for a place in a worker a pair is closed, which gives them its own: were it kept, the next
        // request to come would have it, and those that wait would do so for ever.
        let workers = Rc::downgrade(&dispatcher);
        pairs.pool.keep_while(move || workers.upgrade().is_some_and(|workers| !workers.is_full()));
        // No shares: a pair is used for requests of many clients, and the gate has counted those.
        dispatcher.set_policy(priority, None);
        Self { dispatcher, pairs, refused: Cell::default() }
    }

    /// Adds a worker of the service.
    pub fn attach(&self, channel: OwnedFd) -> std::io::Result<()> {
        self.refused.set(self.refused.get().filter(|status| *status != NO_ROOM));
        self.dispatcher.attach(channel)
    }

    /// Adds what was shed here, and how many requests wait.
    pub(crate) fn report(&self, shed: &mut Shed) {
        self.dispatcher.report(shed);
    }

    /// The ranges of addresses that most of the waiting requests come from.
    pub(crate) fn ranges_waiting(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        self.dispatcher.ranges_waiting(at_most)
    }

    /// Whether requests are answered with 500 because the service is broken. No worker will come for those that wait
    /// for one, so they are answered too.
    pub(crate) fn set_broken(&self, broken: bool) {
        self.refused.set(broken.then_some(StatusCode::INTERNAL_SERVER_ERROR));
        if broken {
            self.reject_all();
        }
    }

    /// Has requests answered with 503 until a worker is attached: there is no room for one.
    pub(crate) fn set_without_room(&self) {
        self.refused.set(Some(NO_ROOM));
        self.reject_all();
    }

    /// Answers those that wait for a worker: none will come.
    pub(super) fn reject_all(&self) {
        self.dispatcher.reject_all();
    }

    /// A new pair for `conn`, whose other end is on its way to a worker, which is told what is spoken on it.
    pub(super) async fn pair(&self, conn: ConnInfo, kind: wire::Kind) -> Result<BackendStream, StatusCode> {
        let (ours, theirs) = sys::seqpacket::stream_pair().map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        // The client itself, so that its requests get their turn by who it is.
        let ConnInfo { peer, local, .. } = conn;
        let preread = Vec::new();
        self.dispatcher.send(Outgoing { stream: theirs.into(), peer, local, kind, preread });
        let pair = BackendStream::of_pair(ours).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        Ok(pair.used_until(tokio::time::Instant::now() + PAIR_AGE))
    }
}

impl KeepAlive for ServiceProxy {
    fn pool(&self) -> &Pool<BackendStream> {
        &self.pairs.pool
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts::OWN
    }

    fn refusal(&self) -> Option<StatusCode> {
        self.refused.get()
    }

    fn names_client(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        true
    }
}

impl Peer for ServiceProxy {
    const RESET_MEANS_UNREAD: bool = true;

    fn describe(&self, request: &mut Request<BoundedBody>, conn: ConnInfo) {
        if let Ok(client) = HeaderValue::try_from(conn.peer.to_string()) {
            request.headers_mut().insert(headers::CLIENT, client);
        }
    }

    /// Makes a pair and sends one end to the service.
    async fn connect(&self, conn: ConnInfo) -> Result<BackendStream, StatusCode> {
        self.pair(conn, wire::Kind::Relayed).await
    }

    fn undelivered(&self) -> u64 {
        self.pairs.undelivered.get()
    }
}

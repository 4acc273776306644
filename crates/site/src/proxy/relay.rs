//! Requests under TLS on their way to another site below our host, which has a `path` and no certificate, and its
//! responses on their way back.
//!
//! Runs in: the worker of the site that has the certificate, under that site's uid. Untrusted input: requests of
//! clients, and responses of the other site's worker, which may be compromised. Must never: let a client say of itself
//! what the other site hears from us, or let the other site hold more of this worker than its share.
//!
//! A request travels on one end of a socket pair, as one to a service does, but a pair has one request: who the client
//! is and how it asked comes with the pair, in the bundle, so the other worker serves it as a connection of that
//! client.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::{Request, Response, StatusCode, Version};
use wire::Kind;

use super::http::Peer;
use super::pool::Pool;
use super::service::ServiceProxy;
use super::stream::BackendStream;
use super::timeout::Timeouts;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::{Own, error};
use crate::proxy::backend::{BackendRequest, HttpBackend, KeepAlive, RequestContext};
use crate::proxy::headers;

/// The ways to the sites that requests are relayed to, by partition.
#[derive(Default)]
pub(crate) struct Relays(RefCell<HashMap<u16, Rc<ServiceProxy>>>);

impl Relays {
    /// Makes ways to these partitions, where there are none yet; there is none any more to a partition of `before` that
    /// is not among them.
    pub fn renew(&self, before: &[u16], now: &[u16], make: impl Fn(u16) -> ServiceProxy) {
        let mut ways = self.0.borrow_mut();
        for partition in before.iter().filter(|partition| !now.contains(partition)) {
            // Requests under way there go on.
            ways.remove(partition).into_iter().for_each(|way| way.reject_all());
        }
        for &partition in now {
            ways.entry(partition).or_insert_with(|| Rc::new(make(partition)));
        }
    }

    /// Adds a worker of a partition, which a later update of routes may be the first to name.
    pub fn attach(
        &self,
        partition: u16,
        channel: OwnedFd,
        make: impl FnOnce() -> ServiceProxy,
    ) -> std::io::Result<()> {
        self.0.borrow_mut().entry(partition).or_insert_with(|| Rc::new(make())).attach(channel)
    }

    /// The way to a partition.
    pub fn way(&self, partition: u16) -> Option<Rc<ServiceProxy>> {
        self.0.borrow().get(&partition).cloned()
    }

    /// The ways to all partitions.
    pub fn ways(&self) -> Vec<Rc<ServiceProxy>> {
        self.0.borrow().values().cloned().collect()
    }

    /// Has the site of `partition` answer.
    pub async fn answer(
        &self,
        partition: Option<u16>,
        conn: ConnInfo,
        request: Request<BoundedBody>,
    ) -> Response<ResponseBody> {
        let Some(way) = partition.and_then(|partition| self.way(partition)) else {
            return error(StatusCode::SERVICE_UNAVAILABLE);
        };
        let relayed = request.extensions().get::<RelayTarget>().cloned();
        let note = |is_logged| relayed.iter().for_each(|relayed| relayed.note(is_logged));
        note(true);
        let relay = SiteProxy { way, kind: kind_of(request.version()) };
        let response =
            relay.send(BackendRequest { context: RequestContext::without_files(conn), request }).await;
        // Nobody there has heard of it, or we have answered in its place.
        if response.extensions().get::<Own>().is_some() {
            note(false);
        }
        response
    }
}

/// Among the extensions of a request that is relayed: where to, and whether the site there logs the request.
#[derive(Clone, Debug)]
pub(crate) struct RelayTarget {
    partition: u16,
    is_logged: Arc<AtomicBool>,
}

impl RelayTarget {
    /// To the site of this partition, which has not heard of the request yet.
    pub fn to(partition: u16) -> Self {
        Self { partition, is_logged: Arc::default() }
    }

    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// Whether the other site logs the request.
    pub fn is_logged(&self) -> bool {
        self.is_logged.load(Relaxed)
    }

    fn note(&self, is_logged: bool) {
        self.is_logged.store(is_logged, Relaxed);
    }
}

/// The kind of request that the other worker is told.
fn kind_of(version: Version) -> Kind {
    match version {
        Version::HTTP_10 => Kind::RelayedTls10,
        Version::HTTP_2 => Kind::RelayedTls2,
        _ => Kind::RelayedTls11,
    }
}

/// The version that the other worker is told, as [`crate::AccessRecord::minor`] has it; `None` for what no site relays.
pub(crate) fn version_of(kind: Kind) -> Option<u8> {
    match kind {
        Kind::RelayedTls10 => Some(0),
        Kind::RelayedTls11 => Some(1),
        Kind::RelayedTls2 => Some(2),
        Kind::Plain | Kind::Relayed | Kind::Tls | Kind::Http2 => None,
    }
}

/// The way of one request.
struct SiteProxy {
    way: Rc<ServiceProxy>,
    kind: Kind,
}

impl KeepAlive for SiteProxy {
    /// Always empty: a pair has one request.
    fn pool(&self) -> &Pool<BackendStream> {
        self.way.pool()
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts::SITE
    }

    fn refusal(&self) -> Option<StatusCode> {
        self.way.refusal()
    }

    fn keeps(&self) -> bool {
        false
    }
}

impl Peer for SiteProxy {
    const RESET_MEANS_UNREAD: bool = true;

    /// The other worker says these things itself, to whoever is behind it.
    fn describe(&self, request: &mut Request<BoundedBody>, _: ConnInfo) {
        headers::remove_forwarded(request.headers_mut());
    }

    async fn connect(&self, conn: ConnInfo) -> Result<BackendStream, StatusCode> {
        self.way.pair(conn, self.kind).await
    }

    fn undelivered(&self) -> u64 {
        self.way.undelivered()
    }
}

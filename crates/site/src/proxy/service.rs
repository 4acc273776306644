//! Requests on their way to the site's services, and the answers on their way back.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and answers of services,
//! which may be compromised. Must never: let a client speak in the name of the relay, or send a request twice
//! that a service may have seen.
//!
//! A relayed request travels on one end of a socket pair whose other end went to the service in a bundle, as a
//! client's connection would; such pairs are kept for further requests.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use conditioning::{Priority, Range};
use http::header::HeaderValue;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use wire::Shed;
use worker::dispatcher::{Dispatcher, Outgoing, Owner};

use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::error;
use crate::http::websocket;
use crate::proxy::backend::{Backend, BackendRequest, Responding};
use crate::proxy::headers;
use crate::proxy::http1_client::Http1Client;
use crate::proxy::response::{self, fault};
use crate::proxy::retry::copy_of;

/// LIMIT: how often a request is sent that nobody has read; each time another worker has died with it waiting.
const TRIES_MAX: u32 = 3;

/// LIMIT: how long a service may take to begin its answer; a client has given up by then.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// LIMIT: pairs kept per service for further requests; more than run at once are of no use.
const IDLE_MAX: usize = 64;

type Sender = Http1Client<BoundedBody>;

/// The way to one service.
pub struct ServiceProxy {
    /// Where new pairs go.
    dispatcher: Rc<Dispatcher>,
    pool: Rc<Pool>,
    broken: Cell<bool>,
}

/// The pairs to one service that wait for further requests.
#[derive(Default)]
struct Pool {
    idle: RefCell<Vec<Sender>>,
    /// Counts retirements of workers: pairs from before one are not used again.
    epoch: Cell<u64>,
    /// Counts pairs that no worker took; each request watches whether its own is among them.
    undelivered: Cell<u64>,
    /// New pairs that wait for a worker.
    waiting: Cell<u32>,
}

impl Owner for Pool {
    /// Dropping the service's end makes the request that waits on ours fail at once.
    fn undelivered(&self, _outgoing: Outgoing) {
        self.undelivered.set(self.undelivered.get() + 1);
        self.waiting.set(self.waiting.get() - 1);
    }

    fn delivered(&self) {
        self.waiting.set(self.waiting.get() - 1);
    }

    /// A service has no connections of clients from us, so what it hands back is its own invention.
    fn handed_back(&self, _stream: OwnedFd, _taken: Vec<u8>, _client: Option<SocketAddr>) {}

    /// Pairs that nobody uses are closed, which lets the worker go, and no other from before is kept.
    fn retiring(&self) {
        self.epoch.set(self.epoch.get() + 1);
        self.idle.borrow_mut().clear();
    }
}

impl Backend for ServiceProxy {
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a> {
        Box::pin(self.answer(request))
    }
}

impl ServiceProxy {
    /// The way to the service called `name`, whose requests wait at most `wait_max` for a worker, and get their turn
    /// by `priority`.
    pub fn new(name: &str, wait_max: Duration, connections: u32, priority: Priority) -> Rc<Self> {
        let pool = Rc::new(Pool::default());
        let dispatcher = Dispatcher::new(name, wait_max, connections, pool.clone());
        // No shares: a pair is used for requests of many clients, and the gate has counted those.
        dispatcher.set_policy(priority, None);
        Rc::new(Self { dispatcher, pool, broken: Cell::new(false) })
    }

    /// Adds a worker of the service.
    pub fn attach(&self, channel: OwnedFd) -> std::io::Result<()> {
        self.dispatcher.attach(channel)
    }

    /// Adds what was shed here, and how many requests wait.
    pub fn report(&self, shed: &mut Shed) {
        self.dispatcher.report(shed);
    }

    /// The ranges of addresses that most of the waiting requests come from.
    pub fn ranges_waiting(&self, at_most: usize) -> Vec<(Range, u32)> {
        self.dispatcher.ranges_waiting(at_most)
    }

    /// Whether requests are answered with 500 because the service is broken; those that wait for a worker as well, for
    /// whom none will come.
    pub fn set_broken(&self, broken: bool) {
        self.broken.set(broken);
        if broken {
            self.dispatcher.reject_all();
        }
    }

    /// Has the service answer `request`.
    async fn answer(&self, request: BackendRequest<'_>) -> Response<ResponseBody> {
        let BackendRequest { conn, mut request, .. } = request;
        if self.broken.get() {
            return error(StatusCode::INTERNAL_SERVER_ERROR);
        }
        headers::prepare(&mut request, conn);
        headers::announce_body(&mut request);
        if let Ok(client) = HeaderValue::try_from(conn.peer.to_string()) {
            request.headers_mut().insert(headers::CLIENT, client);
        }
        match tokio::time::timeout(ANSWER_TIMEOUT, self.exchange(conn, request)).await {
            Ok(Ok(answer)) => response::pass_back(answer, ResponseBody::stream).await,
            Ok(Err(status)) => error(status),
            Err(_) => error(StatusCode::GATEWAY_TIMEOUT),
        }
    }

    async fn exchange(
        &self,
        conn: ConnInfo,
        mut request: Request<BoundedBody>,
    ) -> Result<Response<Incoming>, StatusCode> {
        let asked = websocket::asked(request.extensions());
        let mut tries = 0;
        loop {
            tries += 1;
            let again = request.body().is_end_stream() && tries < TRIES_MAX;
            let copy = again.then(|| copy_of(&request, BoundedBody::empty()));
            let (epoch, undelivered) = (self.pool.epoch.get(), self.pool.undelivered.get());
            let kept = self.pool.idle.borrow_mut().pop();
            let fresh = kept.is_none();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect(conn).await?,
            };
            match sender.send(request).await {
                // Its pair ends with it: what is behind such an answer is nobody's.
                Ok(answer) if response::is_refused(&answer, asked.as_ref()) => {
                    return Err(StatusCode::BAD_GATEWAY);
                }
                Ok(answer) => {
                    self.keep(sender, epoch);
                    return Ok(answer);
                }
                // A kept pair whose service has gone: the request was not sent and goes on a new one.
                Err(mut failure) => match (failure.take_message().filter(|_| !fresh), copy) {
                    (Some(again), _) => request = again,
                    (None, _) if fresh && self.pool.undelivered.get() > undelivered => {
                        return Err(match self.broken.get() {
                            true => StatusCode::INTERNAL_SERVER_ERROR,
                            false => StatusCode::SERVICE_UNAVAILABLE,
                        });
                    }
                    (None, Some(copy)) if is_unread(failure.error()) => request = copy,
                    _ => return Err(fault(failure.error())),
                },
            }
        }
    }

    /// Makes a pair and sends one end to the service.
    async fn connect(&self, conn: ConnInfo) -> Result<Sender, StatusCode> {
        let (ours, theirs) = sys::seqpacket::stream_pair().map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        // The client itself, so that its requests get their turn by who it is.
        let ConnInfo { peer, local, .. } = conn;
        self.pool.waiting.set(self.pool.waiting.get() + 1);
        self.dispatcher.send(Outgoing {
            stream: theirs,
            peer,
            local,
            kind: wire::Kind::Relayed,
            preread: Vec::new(),
        });
        let stream = UnixStream::from_std(ours.into()).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let handshake = response::reader().handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(Http1Client::new(sender, connection))
    }

    /// Keeps a pair once its answer has been passed on, if no worker has retired meanwhile.
    ///
    /// While others wait for a worker it is closed instead, which gives them its place there: were it kept, the next
    /// to come would have it, and those who wait would do so for ever.
    fn keep(&self, mut sender: Sender, epoch: u64) {
        let pool = self.pool.clone();
        tokio::task::spawn_local(async move {
            let ready = sender.ready().await;
            let mut idle = pool.idle.borrow_mut();
            if ready && pool.waiting.get() == 0 && pool.epoch.get() == epoch && idle.len() < IDLE_MAX {
                idle.push(sender);
            }
        });
    }
}

/// Whether the service ended without having read a byte of the request, which can then go to its successor.
///
/// A Unix socket is reset, and not just ended, if its peer goes while bytes are in it that nobody has read.
fn is_unread(error: &hyper::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::ConnectionReset;
        }
        cause = error.source();
    }
    false
}

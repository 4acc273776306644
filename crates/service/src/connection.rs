//! One connection, from its arrival to its end.
//!
//! Runs in: a service's worker. Sees: everything that a client sends. Never: answers a second request on a
//! client's connection unless the whole host is this service's; believes a client about its address.
//!
//! See docs/internals/architecture.md, "The life of a connection", the paragraph about `takes_connections`.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CONNECTION, COOKIE, Entry, HOST, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use request::fields::{self, ForwardedOrigin};
use worker::receiver::Arrival;

use crate::body::{Body, BodyError, Flow};
use crate::deadline::RequestStart;
use crate::io::Io;
use crate::process::{RequestHandler, Worker};
use crate::record::{RecordedBody, RequestRecord, log_malformed};
use crate::timer::Timer;
use crate::{Client, Level, Response, Templates};

/// The smallest buffer that hyper works with.
const BUFFER_MIN: usize = 8192;

/// Whose a connection is, and how long it may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionKind {
    /// From the site's worker, with requests of several clients; it ends when that worker closes it.
    Relayed,
    /// A client's, for one request: the next one might be another partition's.
    OneRequest,
    /// A client's, all of whose requests are for this service.
    Kept,
}

struct ServedConnection<P> {
    worker: Rc<Worker<P>>,
    kind: ConnectionKind,
    peer: SocketAddr,
    flow: Arc<Flow>,
    /// The first request's host.
    host: OnceCell<String>,
}

/// Serves one connection.
pub(crate) async fn serve<P: RequestHandler>(worker: Rc<Worker<P>>, arrival: Arrival) {
    let kind = match (arrival.relayed, worker.owns_host) {
        (true, _) => ConnectionKind::Relayed,
        (false, true) => ConnectionKind::Kept,
        (false, false) => ConnectionKind::OneRequest,
    };
    let connection = Rc::new(ServedConnection {
        worker,
        kind,
        peer: arrival.peer,
        flow: Arc::default(),
        host: OnceCell::new(),
    });
    let mut io = Io::new(arrival.stream, arrival.preread, connection.stall(), connection.flow.clone());
    let end = io.end();
    connection.drive(io).await;
    // After an upgrade, the service has it for as long as it likes.
    let _ = end.await;
    // The source may count the connection as ended from here on, not before.
    drop(arrival.guard);
}

impl<P: RequestHandler> ServedConnection<P> {
    /// Runs HTTP until the connection ends.
    async fn drive(self: Rc<Self>, mut io: Io) {
        if self.kind != ConnectionKind::Relayed {
            io.take_later_versions();
        }
        if self.kind == ConnectionKind::Kept {
            io.set_nodelay();
            io.limit_heads(self.worker.context.limits().head_timeout);
        }
        let this = self.clone();
        let answer = service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        });
        let mut http = pin!(self.protocol().serve_connection(io, answer).with_upgrades());
        let outcome = tokio::select! {
            biased;
            outcome = http.as_mut() => outcome,
            () = self.retired() => {
                http.as_mut().graceful_shutdown();
                http.await
            }
        };
        if let Err(error) = outcome {
            self.failed(&error);
        }
    }

    fn protocol(&self) -> http1::Builder {
        let limits = self.worker.context.limits();
        let mut http = http1::Builder::new();
        // A request that has arrived is processed to its end, so that a service need not be prepared to be
        // stopped at any `await`.
        http.timer(Timer).half_close(true);
        match self.kind {
            // The site's worker has applied the limits, and keeps idle connections at its own discretion.
            ConnectionKind::Relayed => http.header_read_timeout(None),
            ConnectionKind::OneRequest => http
                .keep_alive(false)
                .max_header_size(limits.head_bytes)
                .max_buf_size(limits.head_bytes.max(BUFFER_MIN))
                .header_read_timeout(limits.head_timeout),
            // hyper's timer runs from the end of the request before, so it is what limits idleness. Io limits the
            // time of a head; this must not be less.
            ConnectionKind::Kept => http
                .max_header_size(limits.head_bytes)
                .max_buf_size(limits.head_bytes.max(BUFFER_MIN))
                .header_read_timeout(limits.head_timeout.max(limits.idle_timeout)),
        };
        http
    }

    /// Waits until this connection is to end after the request under way.
    async fn retired(&self) {
        match self.kind {
            ConnectionKind::Kept => self.worker.receiver.drained().await,
            // These end on their own; a relayed one must not be closed by us, since a request may be on its way.
            ConnectionKind::OneRequest | ConnectionKind::Relayed => pending().await,
        }
    }

    /// How long the client may make no progress within a request; the site's worker sees to its own clients.
    fn stall(&self) -> Option<Duration> {
        (self.kind != ConnectionKind::Relayed).then_some(self.worker.context.limits().idle_timeout)
    }

    async fn answer(&self, request: http::Request<Incoming>) -> http::Response<RecordedBody> {
        let mut record = self.record(&request);
        let is_connect = request.method() == Method::CONNECT;
        let response = self.respond(request).await;
        if is_connect || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.flow.upgrade();
        }
        record.answered(response.status());
        response.into_http().map(|body| RecordedBody::new(body, record))
    }

    fn record(&self, request: &http::Request<Incoming>) -> RequestRecord {
        match self.kind {
            ConnectionKind::Relayed => RequestRecord::counted(self.worker.receiver.counters.clone()),
            ConnectionKind::OneRequest => self.logged(request).ends(self.flow.clone()),
            ConnectionKind::Kept => self.logged(request),
        }
    }

    fn logged(&self, request: &http::Request<Incoming>) -> RequestRecord {
        let worker = &self.worker;
        let counters = worker.receiver.counters.clone();
        RequestRecord::logged(counters, worker.log.clone(), worker.site, self.peer, request)
    }

    /// Checks a request, and has the service answer it.
    async fn respond(&self, mut request: http::Request<Incoming>) -> Response {
        let limit = self.worker.context.limits().body_bytes;
        self.flow.begin(!request.body().is_end_stream());
        hide_secrets(request.headers_mut());
        if self.kind == ConnectionKind::Kept && !self.same_host(&request) {
            return Response::status_page(StatusCode::MISDIRECTED_REQUEST).with_close();
        }
        if request.body().size_hint().lower() > limit {
            return BodyError::TooLong(limit).into();
        }
        let client = match self.kind {
            ConnectionKind::Relayed => self.relayed_client(request.headers_mut()),
            ConnectionKind::OneRequest | ConnectionKind::Kept => self.look_through(&mut request),
        };
        request.extensions_mut().insert(Client(client));
        request.extensions_mut().insert(RequestStart(Instant::now()));
        // From here to its end, the request has this version.
        if let Some(pages) = self.worker.templates.as_ref().and_then(Templates::current) {
            request.extensions_mut().insert(pages);
        }
        let (stall, flow) = (self.stall(), self.flow.clone());
        let request = request.map(|incoming| Body::arriving(incoming, limit, stall, flow));
        let response = self.worker.process.answer(request.into()).await;
        if self.flow.over_limit() {
            return BodyError::TooLong(limit).into();
        }
        response.unwrap_or_else(|error| {
            self.worker.log.event(Level::Error, error);
            Response::status_page(StatusCode::INTERNAL_SERVER_ERROR)
        })
    }

    /// Whether the request is for the host of the first one: only that one has been found to be ours.
    fn same_host<B>(&self, request: &http::Request<B>) -> bool {
        let host = host(request);
        *self.host.get_or_init(|| host.clone()) == host
    }

    /// The client's address, as the site's worker tells it; removes the field that does.
    fn relayed_client(&self, headers: &mut HeaderMap) -> SocketAddr {
        let client_header = headers.remove(fields::CLIENT);
        client_header.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(self.peer)
    }

    /// Makes a request that comes from its client what the site's worker would have made of it; the client's address.
    ///
    /// SECURITY: what a client says of its address, its certificate or another path is nowhere to be believed, however
    /// its request has come here.
    fn look_through<B>(&self, request: &mut http::Request<B>) -> SocketAddr {
        let host = fields::settle_host(request);
        let headers = request.headers_mut();
        let upgrade = headers.get(UPGRADE).filter(|_| names_upgrade(headers)).cloned();
        fields::clean_request(headers);
        // A gate passes no TLS to services.
        fields::set_forwarded(headers, ForwardedOrigin { peer: self.peer, scheme: "http" }, host);
        if let Some(upgrade) = upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, upgrade);
        }
        self.peer
    }

    /// Notes how a connection failed, as far as that is of interest.
    fn failed(&self, error: &hyper::Error) {
        let worker = &self.worker;
        let io_error = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
        if io_error.is_some_and(|error| error.kind() == io::ErrorKind::Other) {
            return self.warn(format_args!("a connection arrived that cannot be used: {error}"));
        }
        if self.flow.late_head() {
            log_malformed(&worker.log, worker.site, self.peer, StatusCode::REQUEST_TIMEOUT);
        } else if !error.is_parse() {
            // The client went away or was too slow; the record of its request, if any, says so.
        } else if self.kind == ConnectionKind::Relayed {
            self.warn(format_args!("a malformed request from the site's worker: {error}"));
        } else {
            let status = if error.is_parse_too_large() {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            } else {
                StatusCode::BAD_REQUEST
            };
            log_malformed(&worker.log, worker.site, self.peer, status);
        }
    }

    fn warn(&self, text: std::fmt::Arguments<'_>) {
        self.worker.log.event(Level::Warning, text);
    }
}

/// RFC 9110 7.8: an `Upgrade` that `ServedConnection` does not name is none.
fn names_upgrade(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONNECTION).iter().flat_map(|line| line.as_bytes().split(|&b| b == b','));
    lines.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// Sees to it that a request can be printed without what its user's browser alone should know.
fn hide_secrets(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, COOKIE] {
        if let Entry::Occupied(mut values) = headers.entry(name) {
            values.iter_mut().for_each(|value| value.set_sensitive(true));
        }
    }
}

/// The host that a request is for, in lower case: the target's, or else the Host header's (RFC 9112 3.2.2).
fn host<B>(request: &http::Request<B>) -> String {
    let in_header = || request.headers().get(HOST)?.to_str().ok();
    request
        .uri()
        .authority()
        .map(http::uri::Authority::as_str)
        .or_else(in_header)
        .unwrap_or_default()
        .to_ascii_lowercase()
}

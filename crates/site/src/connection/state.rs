//! The state of a connection, and the next step for it.
//!
//! Untrusted input: none that this module looks at. Must never: lose a byte that was read.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

use http::StatusCode;
use tokio::time::Sleep;

use crate::connection::idle_pool::IdleSlot;
use crate::connection::min_rate::TransferPace;
use crate::connection::socket::ConnectionSocket;
use crate::connection::stream::ClientStream;
use crate::context::SiteContext;
use crate::files::File;
use crate::head::{HeadRefusal, RequestHead};
use crate::http::access_record::{AccessRecord, LoggedRequest};
use crate::http::conn_info::ConnInfo;
use crate::http1::request::ReceivedHead;
use crate::proxy::direct::Direct;

/// A connection as it comes from the gate.
pub struct AcceptedClient {
    /// The socket, non-blocking; it need not be registered with the runtime.
    pub stream: OwnedFd,
    /// Bytes that were already read from it.
    pub preread: Vec<u8>,
    /// The client's address.
    pub peer: SocketAddr,
    /// Our address.
    pub local: SocketAddr,
    /// Whether it begins with a ClientHello.
    pub tls: bool,
    /// Whether it may begin with the preface of HTTP/2, in plaintext.
    pub h2c: bool,
    /// Whether another site's worker is at the other end, as [`ConnInfo::relayed`].
    pub relayed: Option<u8>,
}

/// How serving a connection ended.
#[derive(Debug)]
pub enum ConnectionEnd {
    /// It is closed.
    Closed,
    /// The next request is another partition's, or the worker drains; no answer is under way.
    HandBack {
        /// The socket, non-blocking.
        stream: OwnedFd,
        /// Bytes that were read from it and not yet answered.
        preread: Vec<u8>,
    },
}

/// An answer of the fast path that the socket did not take at once.
pub(crate) struct Partial {
    pub rest: Vec<u8>,
    pub logged: LoggedRequest,
    pub status: u16,
    pub body_bytes: u64,
    pub keep: bool,
}

/// A file to be sent whole.
pub(crate) struct Sending {
    /// The head of the answer.
    pub lead: Vec<u8>,
    pub file: File,
    /// Bytes of it to send; none for `HEAD`.
    pub size: u64,
    pub logged: LoggedRequest,
    pub keep: bool,
}

/// An error response that ends the connection.
pub(crate) struct LastResponse {
    pub status: StatusCode,
    /// For people; may be empty.
    pub sentence: Cow<'static, str>,
    /// The request as the log names it; `None` if its head was refused.
    pub logged: Option<LoggedRequest>,
}

impl LastResponse {
    /// To a request with this head.
    pub fn new(status: StatusCode, head: &RequestHead<'_>) -> Box<Self> {
        Box::new(Self {
            status,
            sentence: Cow::Borrowed(""),
            logged: Some(LoggedRequest::new(head, head.minor)),
        })
    }

    /// To a request that is refused.
    pub fn refusal(refusal: HeadRefusal, logged: Option<LoggedRequest>) -> Box<Self> {
        Box::new(Self { status: refusal.status(), sentence: refusal.sentence(), logged })
    }
}

/// The next thing to do for a connection.
pub(crate) enum NextStep {
    Read,
    /// There is more to be worked on, in another turn.
    Yield,
    Write(Box<Partial>),
    File(Box<Sending>),
    /// A request that is passed on as it came.
    Direct(Box<Direct>),
    General(Box<ReceivedHead>),
    Handshake,
    Http2,
    End(Box<LastResponse>),
    /// Says that this is the end, to a client that may be saying something.
    Leave,
    Close,
    HandBack,
}

/// A connection and how far it has come.
pub(crate) struct ClientConnection<'a> {
    pub(crate) site: &'a Rc<SiteContext>,
    pub(crate) conn: ConnInfo,
    /// `None` only while it is lent out, or after it broke.
    pub(crate) socket: Option<ConnectionSocket>,
    /// Bytes read and not yet answered.
    pub(crate) preread: Vec<u8>,
    /// When the bytes being worked on arrived.
    pub(crate) arrived: Instant,
    /// Since when the next head, or the rest of it, has been awaited.
    pub(crate) since: Instant,
    pub(crate) timer: Option<Pin<Box<Sleep>>>,
    /// How fast the client takes what is sent to it, once it had to be waited for: one that lets answer after answer
    /// wait has only one grace period for all.
    pub(super) takes: Option<Rc<TransferPace>>,
    pub(crate) slot: IdleSlot<'a>,
    /// Whether a head of it has been worked on: filters are to see the next one.
    pub(super) begun: Cell<bool>,
    /// Whether it may begin with the preface of HTTP/2.
    pub(super) h2c: bool,
}

impl ClientConnection<'_> {
    /// Logs a request that was answered at once.
    pub(crate) fn record(&self, head: &RequestHead<'_>, status: u16, body_bytes: u64) {
        let access = AccessRecord::refused(&self.conn, status, body_bytes, self.arrived);
        self.site.worker.record(&access.with_head(head));
    }

    /// Logs a request whose head has gone meanwhile, or was refused.
    pub(crate) fn record_later(&self, logged: Option<&LoggedRequest>, status: u16, body_bytes: u64) {
        let access = AccessRecord::refused(&self.conn, status, body_bytes, self.arrived);
        self.site.worker.record(&match logged {
            None => access,
            Some(logged) => logged.describe(access),
        });
    }

    /// How fast the client takes what is sent to it.
    pub(crate) fn takes(&mut self) -> Rc<TransferPace> {
        let limits = self.site.worker.limits();
        let new = || Rc::new(TransferPace::new(limits.response_rate, limits.stall_timeout));
        self.takes.get_or_insert_with(new).clone()
    }

    /// Takes the socket out, registered with the runtime.
    pub(crate) fn lend(&mut self) -> Option<ClientStream> {
        self.slot.register();
        self.socket.take()?.register().ok()
    }
}

//! What is kept of a connection, and what is to be done with it next.
//!
//! Untrusted input: none that this module looks at. Must never: lose a byte that was read.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

use tokio::time::Sleep;

use crate::connection::idle_pool::Slot;
use crate::connection::min_rate::Pace;
use crate::connection::socket::Socket;
use crate::connection::stream::Stream;
use crate::context::Site;
use crate::files::File;
use crate::head::{Head, Refusal};
use crate::http::access_record::Access;
use crate::http::conn_info::ConnInfo;

/// A connection as it comes from the gate.
pub struct Client {
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
}

/// How serving a connection ended.
#[derive(Debug)]
pub enum Ended {
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
    pub head: Vec<u8>,
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
    /// The head of the request.
    pub head: Vec<u8>,
    pub keep: bool,
}

/// What is to be done next.
pub(crate) enum Next {
    Read,
    Write(Box<Partial>),
    File(Box<Sending>),
    General,
    Handshake,
    Http2,
    Refuse(Refusal),
    /// A request on a connection under TLS that is not ours.
    Misdirected,
    /// A request of a client that has made too many.
    TooMany,
    Close,
    HandBack,
}

/// A connection and how far it has come.
pub(crate) struct Connection<'a> {
    pub(crate) site: &'a Rc<Site>,
    pub(crate) conn: ConnInfo,
    /// `None` only while it is lent out, or after it broke.
    pub(crate) socket: Option<Socket>,
    /// Bytes read and not yet answered.
    pub(crate) preread: Vec<u8>,
    /// When the bytes being worked on arrived.
    pub(crate) arrived: Instant,
    /// Since when the next head, or the rest of it, has been awaited.
    pub(crate) since: Instant,
    pub(crate) timer: Option<Pin<Box<Sleep>>>,
    /// How fast the client takes what is sent to it, once it had to be waited for: one that lets answer after answer
    /// wait has only one grace period for all.
    pub(super) takes: Option<Rc<Pace>>,
    pub(crate) slot: Slot<'a>,
    /// Whether a head of it has been worked on: filters are to see the next one.
    pub(super) begun: Cell<bool>,
    /// Whether it may begin with the preface of HTTP/2.
    pub(super) h2c: bool,
}

impl Connection<'_> {
    pub(crate) fn record(&self, head: Option<&Head<'_>>, status: u16, body_bytes: u64) {
        self.site.worker.record(&Access::of(&self.conn, head, status, body_bytes, self.arrived));
    }

    /// How fast the client takes what is sent to it.
    pub(crate) fn takes(&mut self) -> Rc<Pace> {
        let limits = self.site.worker.limits();
        let new = || Rc::new(Pace::new(limits.response_rate, limits.stall_timeout));
        self.takes.get_or_insert_with(new).clone()
    }

    /// Takes the socket out, registered with the runtime.
    pub(crate) fn lend(&mut self) -> Option<Stream> {
        self.slot.register();
        self.socket.take()?.register().ok()
    }
}

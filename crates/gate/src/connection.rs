//! One connection in the gate: what is known of it, and its bytes.
//!
//! Runs in: the gate. Sees: the first bytes of the connection, which anybody may send. Never: takes them out of
//! the socket but for filters, which must have them.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use request::head;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sys::foreign::Foreign;
use wire::NO_PARTITION;
use worker::dispatcher::Outgoing;

use crate::partition::Partition;
use crate::refusal::GateRefusal;

/// A connection that this gate holds.
pub struct GateConnection {
    /// Its descriptor.
    pub stream: Foreign,
    /// The client.
    pub peer: SocketAddr,
    /// The address of ours that it connected to.
    pub local: SocketAddr,
    /// Bytes that a worker had read before it handed the connection back, or that a filter passes on.
    pub preread: Vec<u8>,
    /// When its present stage began.
    pub since: Instant,
    /// How many bytes have been searched for the end of the head already.
    pub searched: usize,
    /// With less bytes of a ClientHello, a look at it says nothing new.
    pub hello_least: usize,
    /// Its place among those that came from a process of ours instead of the network.
    pub share: Option<ConnectionShare>,
    /// Whether the filters have had this request.
    pub filtered: bool,
    /// The process that answers for its bytes.
    pub source: BytesSource,
    /// The protocol spoken on it, as far as its first bytes have shown.
    pub kind: wire::Kind,
    /// Whether a header of the PROXY protocol comes before the first request.
    pub awaits_proxy_header: bool,
    /// Whether the queue of those without a whole request watches it.
    pub watched: bool,
}

/// The process that answers for the bytes of a connection, which decides where they count.
///
/// SECURITY: whoever held a connection chooses what is seen of it next: bytes that it hands back as read, the place in
/// the stream, how often. Its words count against the client nowhere but with itself, and no offence is found in
/// the bytes that it hands back: those may be what a worker has said of whom this one has the connection.
#[derive(Clone)]
pub enum BytesSource {
    /// The client: this gate itself has read everything, or a server that is alone behind it.
    Client,
    /// The worker of this partition, which has handed the connection back.
    Worker(Rc<Partition>),
    /// The filters, or nobody.
    Filter,
}

/// The result of a look at the connection.
pub enum PeekResult {
    /// No whole head yet; whether anything is there at all.
    Partial {
        /// Whether anything is there at all.
        begun: bool,
    },
    /// The client has closed its side.
    Gone,
    /// A whole head of so many bytes that the filters have not had.
    Unfiltered {
        /// The bytes of the head.
        length: usize,
    },
    /// A whole head for this partition.
    Whole {
        /// Whose it is.
        partition: Rc<Partition>,
        /// Whether the client's address counts for a share of it.
        counted: bool,
    },
    /// Its client is banned where it wants to go.
    Banned,
    /// It is answered here, in the log of that site.
    Refused(GateRefusal, u16),
}

impl PeekResult {
    /// The head did not become whole in time.
    pub const LATE: Self = Self::Refused(GateRefusal::Head(head::HeadRefusal::Late), NO_PARTITION);
}

impl GateConnection {
    /// Takes the head out of the socket, for processes that are to see it as it was checked, and once.
    pub fn take_out(mut self, length: usize) -> Option<Self> {
        let before = self.preread.len();
        self.preread.resize(length.max(before), 0);
        // A look has shown that all of it is there.
        let missing = length.saturating_sub(before);
        let count = match missing {
            0 => 0,
            _ => recv(&self.stream, &mut self.preread[before..], RecvFlags::DONTWAIT).ok()?.0,
        };
        (count == missing).then_some(self)
    }

    pub fn outgoing(self) -> Outgoing {
        let Self { stream, peer, local, preread, kind, .. } = self;
        Outgoing { stream, peer, local, kind, preread }
    }

    /// The other way round, for one that nobody took.
    pub fn undelivered(outgoing: Outgoing, now: Instant) -> Self {
        let Outgoing { stream, peer, local, preread, kind } = outgoing;
        let (searched, share, filtered, awaits_proxy_header, watched) = (0, None, true, false, false);
        let source = BytesSource::Filter;
        Self {
            stream,
            peer,
            local,
            preread,
            since: now,
            searched,
            hello_least: 0,
            share,
            filtered,
            source,
            kind,
            awaits_proxy_header,
            watched,
        }
    }

    /// Looks once more at what is answered here, for the log.
    pub fn copy_received<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        let before = self.preread.len().min(buffer.len());
        buffer[..before].copy_from_slice(&self.preread[..before]);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let more = recv(self.stream.as_fd(), &mut buffer[before..], flags).map_or(0, |(count, _)| count);
        &buffer[..before + more]
    }

    /// Throws unread bytes away, by way of `waste`. Returns the rest of `left` bytes; nothing at the end of the
    /// connection.
    pub fn discard(&self, waste: &mut [u8], left: usize) -> Option<usize> {
        let mut left = left;
        loop {
            match recv(&self.stream, &mut *waste, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return None,
                Ok((count, _)) => left = left.checked_sub(count)?,
                Err(Errno::AGAIN) => return Some(left),
                Err(_) => return None,
            }
        }
    }
}

/// The place of one connection among those that came from the same processes of ours.
pub struct ConnectionShare(Rc<Cell<u32>>);

impl ConnectionShare {
    /// One more of them.
    pub fn new(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }

    /// Whether these connections leave too little room for others.
    ///
    /// LIMIT: an eighth of the `connections` that the gate may hold. Those that wait come from a worker that retires,
    /// and have nothing to lose but the time of a new connection.
    pub fn exceeds(&self, connections: u32) -> bool {
        self.0.get() > (connections / 8).max(1)
    }
}

impl Drop for ConnectionShare {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

//! One connection in the gate: looking at its head, finding its partition, passing it on.
//!
//! Runs in: the gate. Sees: the first bytes of the connection, which anybody may send. Never: takes them out of
//! the socket (but for filters, which must have them), or looks at the same bytes twice without need.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use request::head::{self, Checked, Head};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use wire::NO_PARTITION;
use worker::dispatcher::Outgoing;

use crate::answer::{self, Refusal};
use crate::gate::{Gate, RouteTarget};
use crate::incomplete::Stage;
use crate::partition::{Partition, Share};
use crate::proxy_protocol;
use crate::tls::Protocol;

/// The first byte of a TLS handshake; no request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection that this gate holds.
pub struct Connection {
    /// Its descriptor.
    pub stream: OwnedFd,
    /// The client.
    pub peer: SocketAddr,
    /// The address of ours that it connected to.
    pub local: SocketAddr,
    /// Bytes that a worker had read before it handed the connection back, or that a filter passes on.
    pub preread: Vec<u8>,
    /// When its present stage began.
    pub since: Instant,
    /// How many bytes have been searched for the end of the head already.
    searched: usize,
    /// Its place among those that came from a process of ours instead of the network.
    share: Option<Share>,
    /// Whether the filters have had this request.
    filtered: bool,
    /// What is spoken on it, as far as its first bytes have said.
    pub kind: wire::Kind,
    /// Whether a header of the PROXY protocol comes before the first request.
    awaits_proxy_header: bool,
    /// Whether the queue of those without a whole request watches it.
    pub watched: bool,
}

/// What a look at the connection showed.
pub enum Seen {
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
    Refused(Refusal, u16),
}

impl Seen {
    /// The head did not become whole in time.
    pub const LATE: Self = Self::Refused(Refusal::Head(head::Refusal::Late), NO_PARTITION);
}

impl Connection {
    /// Takes a new connection: many have their head there already, and are passed on at once.
    pub fn accepted(gate: &Rc<Gate>, stream: OwnedFd, peer: SocketAddr, local: SocketAddr, now: Instant) {
        let new = Self {
            stream,
            peer,
            local,
            preread: Vec::new(),
            since: now,
            searched: 0,
            share: None,
            filtered: false,
            kind: wire::Kind::Plain,
            awaits_proxy_header: gate.listener(local).is_some_and(|listener| listener.proxies.expected()),
            watched: false,
        };
        new.begin(gate, Stage::Silent, now);
    }

    /// Takes a connection that a worker handed back, or that comes from the last filter. `client` is whose it was when
    /// it went there, as far as that is known: on listeners with `proxy_protocol`, its peer does not say it.
    pub fn handed_back(
        gate: &Rc<Gate>,
        stream: OwnedFd,
        preread: Vec<u8>,
        client: Option<SocketAddr>,
        share: Option<Share>,
        filtered: bool,
    ) {
        let address = |found: rustix::io::Result<rustix::net::SocketAddrAny>| {
            found.ok().and_then(|found| SocketAddr::try_from(found).ok())
        };
        let peer = rustix::net::getpeername(&stream)
            .map(|found| found.ok_or(Errno::NOTCONN))
            .and_then(|found| found);
        let (peer, local) = (address(peer), address(rustix::net::getsockname(&stream)));
        let (Some(peer), Some(local)) = (peer, local) else {
            // Not a connection of a client, or one that is gone.
            return;
        };
        let peer = match gate.listener(local) {
            // SECURITY: nothing comes back of a connection with TLS, whose middle would be taken for a beginning here.
            Some(listener) if listener.protocol.get() == Protocol::Tls => return,
            // SECURITY: nor is anybody believed who cannot have had the connection of a proxy.
            Some(listener) if listener.proxies.expected() => {
                match client.filter(|_| listener.proxies.trusts(peer.ip())) {
                    Some(client) => client,
                    None => return,
                }
            }
            _ => peer,
        };
        if !gate.has_room() {
            return;
        }
        gate.connection_opened();
        let stage = if preread.is_empty() { Stage::Idle } else { Stage::Begun };
        let now = Instant::now();
        let (since, searched, kind, awaits_proxy_header, watched) = (now, 0, wire::Kind::Plain, false, false);
        Self {
            stream,
            peer,
            local,
            preread,
            since,
            searched,
            share,
            filtered,
            kind,
            awaits_proxy_header,
            watched,
        }
        .begin(gate, stage, now);
    }

    fn begin(mut self, gate: &Rc<Gate>, stage: Stage, now: Instant) {
        match self.peek(gate, now) {
            // SECURITY: a worker may hand one connection back any number of times.
            Seen::Partial { .. } if self.share.as_ref().is_some_and(|share| share.exceeds(&gate.limits)) => {
                gate.connection_closed();
            }
            Seen::Partial { begun } => {
                let stage = if begun { Stage::Begun } else { stage };
                if !gate.incomplete.take(self, stage, now) {
                    gate.connection_closed();
                }
            }
            seen => self.dispatch(gate, seen, now),
        }
    }

    /// Looks at what is there, without taking it.
    pub fn peek(&mut self, gate: &Gate, now: Instant) -> Seen {
        if self.awaits_proxy_header {
            if let Err(seen) = proxy_protocol::strip_header(self, gate) {
                return seen;
            }
            self.awaits_proxy_header = false;
            if gate.policies().is_banned(self.peer.ip(), now) {
                return Seen::Gone;
            }
        }
        let mut buffer = gate.peeked.borrow_mut();
        let before = self.preread.len().min(buffer.len());
        buffer[..before].copy_from_slice(&self.preread[..before]);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.stream, &mut buffer[before..], flags) {
            // The client sends no more; a whole head may be among what it sent before.
            Ok((0, _)) if before < buffer.len() => match self.parse(gate, &buffer[..before], now) {
                Seen::Partial { .. } => Seen::Gone,
                seen => seen,
            },
            Ok((count, _)) => self.parse(gate, &buffer[..before + count], now),
            Err(Errno::AGAIN | Errno::INTR) => self.parse(gate, &buffer[..before], now),
            Err(_) => Seen::Gone,
        }
    }

    fn parse(&mut self, gate: &Gate, bytes: &[u8], now: Instant) -> Seen {
        let limit = gate.limits.head_bytes;
        // The first look also tells what is no HTTP at all; later ones wait for the end of the head, so that a
        // client which sends byte by byte costs a search of each byte and not a parse of all before it.
        let first = self.searched == 0;
        let from = self.searched.saturating_sub(3);
        self.searched = bytes.len();
        if gate.has_multiple_protocols()
            && let Some(listener) = gate.listener(self.local)
            && let Some(seen) = self.parse_first_bytes(gate, &listener, bytes, now)
        {
            return seen;
        }
        if bytes.first() == Some(&TLS_HANDSHAKE)
            && let Some(listener) = gate.listener(self.local)
            && let Some(target) = listener.default_target().filter(|target| target.partition.guarded.get())
        {
            if gate.hides_from_filters(&listener) {
                self.kind = wire::Kind::Tls;
                return Seen::Refused(Refusal::Unseen, NO_PARTITION);
            }
            return match is_whole_hello(bytes, limit) {
                true => Seen::Whole { partition: target.partition, counted: !listener.shared.get() },
                false => Seen::Partial { begun: true },
            };
        }
        let ended = memchr::memmem::find(&bytes[from.min(bytes.len())..], b"\r\n\r\n").is_some();
        if bytes.is_empty() || !(first || ended || bytes.len() > limit) {
            return Seen::Partial { begun: !bytes.is_empty() };
        }
        match head::check(bytes, limit) {
            Checked::Partial => Seen::Partial { begun: true },
            Checked::Refused(refusal) => Seen::Refused(Refusal::Head(refusal), NO_PARTITION),
            Checked::Whole(head) => self.route(gate, &bytes[..head.length], &head, now),
        }
    }

    /// What becomes of a whole head.
    fn route(&self, gate: &Gate, raw: &[u8], head: &Head<'_>, now: Instant) -> Seen {
        let listener = gate.listener(self.local);
        let counted = listener.as_ref().is_some_and(|listener| !listener.shared.get());
        if gate.policies().is_strange(raw) {
            return Seen::Refused(Refusal::Strange, NO_PARTITION);
        }
        // What comes from the filters has been counted already.
        if counted && !self.filtered && !gate.policies().within_rate(self.peer.ip(), now) {
            return Seen::Refused(Refusal::TooMany, NO_PARTITION);
        }
        // Those who come from the network: what a filter let pass would have been redirected before.
        if !self.filtered
            && gate.has_multiple_protocols()
            && let Some(port) = listener.as_ref().and_then(|listener| listener.redirect(head))
        {
            return Seen::Refused(Refusal::Redirect(port), NO_PARTITION);
        }
        if !self.filtered && gate.filters().is_some() {
            return Seen::Unfiltered { length: raw.len() };
        }
        let Some(listener) = listener else {
            // A guarded server has closed the socket by which it came.
            return Seen::Refused(Refusal::Unavailable, NO_PARTITION);
        };
        self.route_to(listener.target(head), counted, now)
    }

    /// What becomes of a connection that is for `target`.
    pub(crate) fn route_to(&self, target: Option<RouteTarget>, counted: bool, now: Instant) -> Seen {
        match target {
            None => Seen::Refused(Refusal::NoSuchSite, NO_PARTITION),
            Some(target) if target.partition.is_broken() => Seen::Refused(Refusal::Broken, target.site),
            Some(target) if counted && target.partition.has_banned(self.peer.ip(), now) => Seen::Banned,
            Some(target) if counted && !target.partition.within_rate(self.peer.ip(), now) => {
                Seen::Refused(Refusal::TooManyThere, target.site)
            }
            Some(target) => Seen::Whole { partition: target.partition, counted },
        }
    }

    /// Passes the connection on, answers it, or lets it go.
    pub fn dispatch(self, gate: &Rc<Gate>, seen: Seen, now: Instant) {
        if matches!(seen, Seen::Whole { .. } | Seen::Unfiltered { .. }) {
            gate.incomplete.unwatch(&self);
        }
        match seen {
            Seen::Whole { partition, counted: true } => partition.dispatcher.send(self.outgoing()),
            Seen::Whole { partition, counted: false } => partition.dispatcher.send_uncounted(self.outgoing()),
            Seen::Unfiltered { length } => match self.take_out(length) {
                Some(connection) => gate.chain().send(connection.outgoing()),
                None => gate.connection_closed(),
            },
            Seen::Refused(refusal, site) => {
                gate.refused(self.peer, self.local, refusal, now);
                answer::refuse(gate, self, site, refusal, now);
            }
            Seen::Banned => {
                gate.drops.note(|shed| shed.banned += 1);
                // Bytes that nobody has read would make a reset of the end, which says more than silence.
                discard(gate, &self.stream, gate.limits.head_bytes);
                gate.connection_closed();
            }
            Seen::Gone | Seen::Partial { .. } => gate.connection_closed(),
        }
    }

    /// Takes the head out of the socket, for processes that are to see it as it was checked, and once.
    fn take_out(mut self, length: usize) -> Option<Self> {
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

    fn outgoing(self) -> Outgoing {
        let Self { stream, peer, local, preread, kind, .. } = self;
        Outgoing { stream, peer, local, kind, preread }
    }

    /// The other way round, for one that nobody took.
    pub fn undelivered(outgoing: Outgoing, now: Instant) -> Self {
        let Outgoing { stream, peer, local, preread, kind } = outgoing;
        let (searched, share, filtered, awaits_proxy_header, watched) = (0, None, true, false, false);
        Self {
            stream,
            peer,
            local,
            preread,
            since: now,
            searched,
            share,
            filtered,
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
}

/// Throws away what is there of a connection. What is left of `left` bytes; nothing at the end of the connection.
pub fn discard(gate: &Gate, stream: &OwnedFd, left: usize) -> Option<usize> {
    let mut waste = gate.peeked.borrow_mut();
    let mut left = left;
    loop {
        match recv(stream, &mut waste[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return None,
            Ok((count, _)) => left = left.checked_sub(count)?,
            Err(Errno::AGAIN) => return Some(left),
            Err(_) => return None,
        }
    }
}

/// Whether the first record of a TLS handshake, which is for a guarded server to understand, is there as a whole.
fn is_whole_hello(bytes: &[u8], limit: usize) -> bool {
    let [_, _, _, high, low, rest @ ..] = bytes else {
        return false;
    };
    rest.len() >= usize::from(u16::from_be_bytes([*high, *low])) || bytes.len() > limit
}

//! Where connections come in, and where they go: to a partition, through the filters, to an answer of our own.
//!
//! Runs in: the gate. Sees: what workers and filters hand back. Never: keeps anything of a connection that was passed
//! on.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use rustix::io::Errno;

use sys::foreign::Foreign;

use crate::answer;
use crate::connection::{BytesSource, ConnectionShare, GateConnection, PeekResult};
use crate::gate::Gate;
use crate::incomplete::HeadStage;
use crate::listener::Protocol;

impl GateConnection {
    /// Takes a new connection: many have their head there already, and are passed on at once.
    pub fn accepted(
        gate: &Rc<Gate>,
        stream: OwnedFd,
        (peer, local): (SocketAddr, SocketAddr),
        awaits_proxy_header: bool,
        now: Instant,
    ) {
        let new = Self {
            stream: stream.into(),
            peer,
            local,
            preread: Vec::new(),
            since: now,
            searched: 0,
            hello_least: 0,
            share: None,
            filtered: false,
            source: BytesSource::Client,
            kind: wire::Kind::Plain,
            awaits_proxy_header,
            watched: false,
        };
        new.begin(gate, HeadStage::Silent, now);
    }

    /// Takes a connection that a worker handed back, or that comes from the last filter. `client` is whose it was when
    /// it went there, as far as that is known: on listeners with `proxy_protocol`, its peer does not say it.
    pub fn handed_back(
        gate: &Rc<Gate>,
        stream: Foreign,
        preread: Vec<u8>,
        client: Option<SocketAddr>,
        share: Option<ConnectionShare>,
        source: BytesSource,
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
        let stage = if preread.is_empty() { HeadStage::Idle } else { HeadStage::Begun };
        let now = Instant::now();
        let filtered = matches!(source, BytesSource::Filter);
        let (since, searched, kind, awaits_proxy_header, watched) = (now, 0, wire::Kind::Plain, false, false);
        Self {
            stream,
            peer,
            local,
            preread,
            since,
            searched,
            hello_least: 0,
            share,
            filtered,
            source,
            kind,
            awaits_proxy_header,
            watched,
        }
        .begin(gate, stage, now);
    }

    /// Finds out where the connection goes, now or when its head is whole.
    pub fn begin(mut self, gate: &Rc<Gate>, stage: HeadStage, now: Instant) {
        match self.peek(gate, now) {
            // SECURITY: a worker may hand one connection back any number of times.
            PeekResult::Partial { .. }
                if self.share.as_ref().is_some_and(|share| share.exceeds(gate.limits.connections)) =>
            {
                gate.connection_closed();
            }
            PeekResult::Partial { begun } => {
                let stage = if begun { HeadStage::Begun } else { stage };
                if !gate.incomplete.take(self, stage, now) {
                    gate.connection_closed();
                }
            }
            seen => self.dispatch(gate, seen, now),
        }
    }

    /// Passes the connection on, answers it, or lets it go.
    pub fn dispatch(self, gate: &Rc<Gate>, seen: PeekResult, now: Instant) {
        if matches!(seen, PeekResult::Whole { .. } | PeekResult::Unfiltered { .. }) {
            gate.incomplete.unwatch(&self);
        }
        match seen {
            PeekResult::Whole { partition, counted: true } => partition.dispatcher.send(self.outgoing()),
            PeekResult::Whole { partition, counted: false } => {
                partition.dispatcher.send_uncounted(self.outgoing())
            }
            PeekResult::Unfiltered { length } => match (self.take_out(length), gate.filters()) {
                (Some(connection), Some(chain)) => chain.send(connection.outgoing()),
                _ => gate.connection_closed(),
            },
            PeekResult::Refused(refusal, site) => {
                gate.refused(&self, refusal, now);
                answer::refuse(gate, self, site, refusal, now);
            }
            PeekResult::Banned => {
                gate.drops.note(|shed| shed.banned += 1);
                // Bytes that nobody has read would make a reset of the end, which says more than silence.
                self.discard(&mut gate.peeked.borrow_mut(), gate.limits.head_bytes);
                gate.connection_closed();
            }
            PeekResult::Gone | PeekResult::Partial { .. } => gate.connection_closed(),
        }
    }
}

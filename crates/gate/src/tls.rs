//! Listeners that speak more than HTTP/1.1: whose a connection is by the name in its ClientHello, and HTTP/2 without
//! TLS.
//!
//! Runs in: the gate. Sees: the first bytes of connections, which anybody may send. Never: has a key, decrypts
//! anything,
//! or takes a byte of it out of the socket.
//!
//! Sources: RFC 8446 (TLS 1.3), RFC 9113 3.4 (the preface of HTTP/2).

use std::time::Instant;

use request::head;
use request::hello;
use wire::{Kind, NO_PARTITION};

use crate::connection::{GateConnection, PeekResult};
use crate::gate::Gate;
use crate::listener::{GateListener, Protocol};
use crate::refusal::GateRefusal;

/// RFC 9113 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl GateConnection {
    /// The decision about a connection's first bytes on such a listener; `None` where they are those of a request.
    pub fn parse_first_bytes(
        &mut self,
        gate: &Gate,
        listener: &GateListener,
        bytes: &[u8],
        now: Instant,
    ) -> Option<PeekResult> {
        match listener.protocol.get() {
            Protocol::Plain => None,
            Protocol::Tls => Some(self.parse_hello(gate, listener, bytes, now)),
            Protocol::PlainOrHttp2 if bytes.starts_with(PREFACE) => {
                self.kind = Kind::Http2;
                Some(self.route_host(gate, listener, b"", now))
            }
            Protocol::PlainOrHttp2 if PREFACE.starts_with(bytes) => {
                Some(PeekResult::Partial { begun: !bytes.is_empty() })
            }
            Protocol::PlainOrHttp2 => None,
        }
    }

    fn parse_hello(
        &mut self,
        gate: &Gate,
        listener: &GateListener,
        bytes: &[u8],
        now: Instant,
    ) -> PeekResult {
        self.kind = Kind::Tls;
        if bytes.len() < self.hello_least {
            return PeekResult::Partial { begun: !bytes.is_empty() };
        }
        match hello::check(bytes) {
            hello::CheckedHello::Partial(least) => {
                self.hello_least = least;
                PeekResult::Partial { begun: !bytes.is_empty() }
            }
            hello::CheckedHello::Foreign => {
                self.kind = Kind::Plain;
                PeekResult::Refused(GateRefusal::NotTls, NO_PARTITION)
            }
            hello::CheckedHello::Malformed => PeekResult::Refused(
                GateRefusal::Head(head::HeadRefusal::Malformed("not a ClientHello")),
                NO_PARTITION,
            ),
            hello::CheckedHello::Whole(hello) => self.route_host(gate, listener, hello.name(), now),
        }
    }

    /// Decides about a connection of which nothing but a host is known, or not even that.
    fn route_host(&self, gate: &Gate, listener: &GateListener, host: &[u8], now: Instant) -> PeekResult {
        let counted = !listener.shared.get();
        if gate.hides_from_filters(listener) {
            return PeekResult::Refused(GateRefusal::Unseen, NO_PARTITION);
        }
        if counted && !gate.policies().within_rate(self.peer.ip(), now) {
            return PeekResult::Refused(GateRefusal::TooMany, NO_PARTITION);
        }
        self.route_to(listener.target_of_host(host), counted, now)
    }
}

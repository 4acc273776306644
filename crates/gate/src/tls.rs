//! Listeners that speak more than HTTP/1.1: whose a connection is by the name in its ClientHello, and HTTP/2 without TLS.
//!
//! Runs in: the gate. Sees: the first bytes of connections, which anybody may send. Never: has a key, decrypts anything,
//! or takes a byte of it out of the socket.
//!
//! Source: architecture.md, "The life of a connection"; mechanisms.md H1, H8.

use std::time::Instant;

use request::head;
use request::hello;
use wire::{Kind, NO_PARTITION};

use crate::answer::Refusal;
use crate::connection::{Connection, Seen};
use crate::desk::{Desk, Listener};

/// What is spoken on a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1.
    #[default]
    Plain,
    /// TLS, and nothing else.
    Tls,
    /// HTTP/1.1, and HTTP/2 to those who begin with its preface.
    PlainOrHttp2,
}

/// RFC 9113 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A fatal alert (RFC 8446 6): the record of a connection that has not come to keys.
pub fn alert(refusal: Refusal) -> [u8; 7] {
    const DECODE_ERROR: u8 = 50;
    const INTERNAL_ERROR: u8 = 80;
    const UNRECOGNIZED_NAME: u8 = 112;
    let description = match refusal {
        Refusal::NoSuchPlace => UNRECOGNIZED_NAME,
        Refusal::Head(head::Refusal::Malformed(_)) => DECODE_ERROR,
        _ => INTERNAL_ERROR,
    };
    [21, 3, 3, 0, 2, 2, description]
}

impl Connection {
    /// What a connection's first bytes say on such a listener; nothing, where they are those of a request.
    pub fn beginning(
        &mut self,
        desk: &Desk,
        listener: &Listener,
        bytes: &[u8],
        now: Instant,
    ) -> Option<Seen> {
        match listener.speaks.get() {
            Speaks::Plain => None,
            Speaks::Tls => Some(self.hello(desk, listener, bytes, now)),
            Speaks::PlainOrHttp2 if bytes.starts_with(PREFACE) => {
                self.kind = Kind::Http2;
                Some(self.judge_nameless(desk, listener, b"", now))
            }
            Speaks::PlainOrHttp2 if PREFACE.starts_with(bytes) => {
                Some(Seen::Partial { begun: !bytes.is_empty() })
            }
            Speaks::PlainOrHttp2 => None,
        }
    }

    fn hello(&mut self, desk: &Desk, listener: &Listener, bytes: &[u8], now: Instant) -> Seen {
        self.kind = Kind::Tls;
        match hello::check(bytes) {
            hello::Checked::Partial => Seen::Partial { begun: !bytes.is_empty() },
            hello::Checked::Foreign => {
                self.kind = Kind::Plain;
                Seen::Refused(Refusal::NotTls, NO_PARTITION)
            }
            hello::Checked::Malformed => {
                Seen::Refused(Refusal::Head(head::Refusal::Malformed("not a ClientHello")), NO_PARTITION)
            }
            hello::Checked::Whole(hello) => self.judge_nameless(desk, listener, hello.name(), now),
        }
    }

    /// What becomes of a connection of which nothing but a host is known, or not even that.
    fn judge_nameless(&self, desk: &Desk, listener: &Listener, host: &[u8], now: Instant) -> Seen {
        let counted = !listener.shared.get();
        if desk.hides_from_filters(listener) {
            return Seen::Refused(Refusal::Unseen, NO_PARTITION);
        }
        if counted && !desk.policies().within_rate(self.peer.ip(), now) {
            return Seen::Refused(Refusal::TooMany, NO_PARTITION);
        }
        self.seen_at(listener.place_of_host(host), counted, now)
    }
}

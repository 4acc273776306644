//! Looking at what has come of a request, without taking it, until its head is whole.
//!
//! Runs in: the gate. Sees: the first bytes of connections, which anybody may send. Never: looks at the same bytes
//! twice without need.

use std::time::Instant;

use request::head::{self, CheckedHead};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use wire::NO_PARTITION;

use crate::connection::{GateConnection, PeekResult};
use crate::gate::Gate;
use crate::refusal::GateRefusal;

/// The first byte of a TLS handshake; no request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

impl GateConnection {
    /// Looks at what is there, without taking it.
    pub fn peek(&mut self, gate: &Gate, now: Instant) -> PeekResult {
        if self.awaits_proxy_header {
            if let Err(seen) = self.strip_proxy_header(gate) {
                return seen;
            }
            self.awaits_proxy_header = false;
            if gate.policies().is_banned(self.peer.ip(), now) {
                return PeekResult::Gone;
            }
        }
        let mut buffer = gate.peeked.borrow_mut();
        let before = self.preread.len().min(buffer.len());
        buffer[..before].copy_from_slice(&self.preread[..before]);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.stream, &mut buffer[before..], flags) {
            // The client sends no more; a whole head may be among what it sent before.
            Ok((0, _)) if before < buffer.len() => match self.parse(gate, &buffer[..before], now) {
                PeekResult::Partial { .. } => PeekResult::Gone,
                seen => seen,
            },
            Ok((count, _)) => self.parse(gate, &buffer[..before + count], now),
            Err(Errno::AGAIN | Errno::INTR) => self.parse(gate, &buffer[..before], now),
            Err(_) => PeekResult::Gone,
        }
    }

    fn parse(&mut self, gate: &Gate, bytes: &[u8], now: Instant) -> PeekResult {
        let limit = gate.limits.head_bytes;
        // The first look also tells what is no HTTP at all; later ones wait for the end of the head.
        let searched = std::mem::replace(&mut self.searched, bytes.len());
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
                return PeekResult::Refused(GateRefusal::Unseen, NO_PARTITION);
            }
            return match is_whole_hello(bytes, limit) {
                true => PeekResult::Whole { partition: target.partition, counted: !listener.shared.get() },
                false => PeekResult::Partial { begun: true },
            };
        }
        let is_new = searched == 0 || head::may_have_ended(bytes, searched) || bytes.len() > limit;
        if bytes.is_empty() || !is_new {
            return PeekResult::Partial { begun: !bytes.is_empty() };
        }
        match head::check(bytes, limit) {
            CheckedHead::Partial => PeekResult::Partial { begun: true },
            CheckedHead::Refused(refusal) => PeekResult::Refused(GateRefusal::Head(refusal), NO_PARTITION),
            CheckedHead::Whole(head) => self.route(gate, &bytes[..head.length], &head, now),
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

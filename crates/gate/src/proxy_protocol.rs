//! Connections that begin with a header of the PROXY protocol: who they really come from, as a trusted proxy says.
//!
//! Runs in: the gate. Sees: the first bytes of connections. Never: believes a peer that is not trusted, or takes a byte
//! out of the socket that is not the header's.

use request::head::HeadRefusal;
use request::proxy::{self, ProxyPreamble};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use wire::NO_PARTITION;

use crate::connection::{GateConnection, PeekResult as Outcome};
use crate::gate::Gate;
use crate::refusal;

/// Bytes looked at: the longest header that `request::proxy` takes.
const LOOK_BYTES: usize = 16 + 2048;

impl GateConnection {
    /// Takes the header off a new connection and puts the client in the proxy's place; or says why there is no going
    /// on.
    pub fn strip_proxy_header(&mut self, gate: &Gate) -> Result<(), Outcome> {
        let trusted = gate.listener(self.local).is_some_and(|own| own.proxies.trusts(self.peer.ip()));
        if !trusted {
            // Without a word: whoever it is has no business here.
            return Err(Outcome::Gone);
        }
        let mut bytes = [0; LOOK_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let count = match recv(&self.stream, &mut bytes[..], flags) {
            Ok((0, _)) => return Err(Outcome::Gone),
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Err(Outcome::Partial { begun: false }),
            Err(_) => return Err(Outcome::Gone),
        };
        let (length, ends) = match proxy::parse(&bytes[..count]) {
            ProxyPreamble::Partial => return Err(Outcome::Partial { begun: true }),
            ProxyPreamble::Bad(what) => {
                let refusal = refusal::GateRefusal::Head(HeadRefusal::Malformed(what));
                return Err(Outcome::Refused(refusal, NO_PARTITION));
            }
            ProxyPreamble::Header { length, ends } => (length, ends),
        };
        let received = recv(&self.stream, &mut bytes[..length], RecvFlags::DONTWAIT);
        if received.map(|(count, _)| count) != Ok(length) {
            return Err(Outcome::Gone);
        }
        // The listener is known by our own end, which stays as it is.
        if let Some((client, _)) = ends {
            self.peer = client;
        }
        Ok(())
    }
}

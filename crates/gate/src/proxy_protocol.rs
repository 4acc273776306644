//! Connections that begin with a header of the PROXY protocol: who they really come from, as a trusted proxy says.
//!
//! Runs in: the gate. Sees: the first bytes of connections. Never: believes a peer that is not trusted, or takes a byte
//! out of the socket that is not the header's.

use std::cell::RefCell;
use std::net::IpAddr;

use conditioning::Network;
use request::head::Refusal;
use request::proxy::{self, Seen};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use wire::NO_PARTITION;

use crate::answer;
use crate::connection::{self, Connection};
use crate::gate::Gate;

/// Bytes looked at: the longest header that `request::proxy` takes.
const LOOK_BYTES: usize = 16 + 2048;

/// Who may say that a connection is somebody else's; if nobody, connections begin with requests.
#[derive(Debug, Default)]
pub struct Proxies(RefCell<Vec<Network>>);

impl Proxies {
    /// Adds a network.
    pub fn trust(&self, network: Network) {
        self.0.borrow_mut().push(network);
    }

    /// Whether connections begin with a header.
    pub fn expected(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    /// Whether this is the address of a proxy that may say so.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.0.borrow().iter().any(|network| network.contains(peer.to_canonical()))
    }
}

/// Takes the header off a new connection and puts the client in the proxy's place; or says why there is no going on.
pub fn strip_header(connection: &mut Connection, gate: &Gate) -> Result<(), connection::Seen> {
    use connection::Seen as Outcome;
    let trusted = gate.listener(connection.local).is_some_and(|own| own.proxies.trusts(connection.peer.ip()));
    if !trusted {
        // Without a word: whoever it is has no business here.
        return Err(Outcome::Gone);
    }
    let mut bytes = [0; LOOK_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let count = match recv(&connection.stream, &mut bytes[..], flags) {
        Ok((0, _)) => return Err(Outcome::Gone),
        Ok((count, _)) => count,
        Err(Errno::AGAIN | Errno::INTR) => return Err(Outcome::Partial { begun: false }),
        Err(_) => return Err(Outcome::Gone),
    };
    let (length, ends) = match proxy::parse(&bytes[..count]) {
        Seen::Partial => return Err(Outcome::Partial { begun: true }),
        Seen::Bad(what) => {
            let refusal = answer::Refusal::Head(Refusal::Malformed(what));
            return Err(Outcome::Refused(refusal, NO_PARTITION));
        }
        Seen::Header { length, ends } => (length, ends),
    };
    let received = recv(&connection.stream, &mut bytes[..length], RecvFlags::DONTWAIT);
    if received.map(|(count, _)| count) != Ok(length) {
        return Err(Outcome::Gone);
    }
    // The listener is known by our own end, which stays as it is.
    if let Some((client, _)) = ends {
        connection.peer = client;
    }
    Ok(())
}

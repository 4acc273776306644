//! The listeners of a gate, with all that is said of them. The launcher says them as a whole; those of an update take
//! the place of the others between two events, or never.
//!
//! Runs in: the gate. Sees: messages of the launcher, which is trusted. Never: mixes the routes of two configurations.

use std::net::SocketAddr;
use std::rc::Rc;

use conditioning::IpNetwork;

use crate::listener::{GateListener, Protocol, RouteTarget};

/// LIMIT: closed listeners whose routes are kept for connections that came by them; the oldest one makes room.
const CLOSED_MAX: usize = 16;

/// All listeners.
#[derive(Default)]
pub struct Tables {
    listeners: Vec<Rc<GateListener>>,
    /// Those that an update has closed, the newest last: connections that came by them are still routed.
    closed: Vec<Rc<GateListener>>,
    has_multiple_protocols: bool,
}

impl Tables {
    /// Adds a listener, which has no routes yet.
    pub fn listen(&mut self, number: u16, address: SocketAddr) -> Rc<GateListener> {
        let listener = Rc::new(GateListener::new(number, address));
        self.listeners.push(listener.clone());
        listener
    }

    /// Takes a listener out that nobody can connect to any more.
    pub fn unlisten(&mut self, listener: &Rc<GateListener>) {
        self.listeners.retain(|known| !Rc::ptr_eq(known, listener));
    }

    /// Whether there is a listener at this very address.
    pub fn listens_at(&self, address: SocketAddr) -> bool {
        self.listeners.iter().any(|listener| listener.address() == address)
    }

    /// The listener that an address of ours belongs to.
    pub fn listener(&self, local: SocketAddr) -> Option<&Rc<GateListener>> {
        let closed = self.closed.iter().rev();
        self.listeners.iter().chain(closed).find(|listener| listener.covers(local))
    }

    /// Whether there is a listener on which more is done than HTTP/1.1.
    pub fn has_multiple_protocols(&self) -> bool {
        self.has_multiple_protocols
    }

    /// Adds a route to a listener.
    pub fn add_route(&self, listener: u16, host: &str, path: &str, target: &RouteTarget) {
        self.numbered(listener).for_each(|listener| listener.add_route(host, path, target.clone()));
    }

    /// Takes a host out of a listener, with all its paths.
    pub fn forget_host(&self, listener: u16, host: &str) {
        self.numbered(listener).for_each(|listener| listener.forget_host(host));
    }

    /// Sets what is spoken on a listener.
    pub fn set_protocol(&mut self, listener: u16, protocol: Protocol) {
        self.has_multiple_protocols = true;
        self.numbered(listener).for_each(|listener| listener.protocol.set(protocol));
    }

    /// Requests for `host` below `path` on a listener are redirected to https at `port`; not at all, if it is 0.
    pub fn redirect(&mut self, listener: u16, host: &str, path: &str, port: u16) {
        self.has_multiple_protocols = true;
        self.numbered(listener).for_each(|listener| listener.add_redirect(host, path, port));
    }

    /// The addresses of the clients of a listener say nothing.
    pub fn share_connections(&self, listener: u16) {
        self.numbered(listener).for_each(|listener| listener.shared.set(true));
    }

    /// Connections of a listener on which filters see no requests may pass them by.
    pub fn allow_unfiltered(&self, listener: u16) {
        self.numbered(listener).for_each(|listener| listener.unfiltered.set(true));
    }

    /// Has connections on a listener begin with a header, which this network may send.
    pub fn trust_proxy(&self, listener: u16, network: IpNetwork) {
        self.numbered(listener).for_each(|listener| listener.proxies.trust(network));
    }

    fn numbered(&self, number: u16) -> impl Iterator<Item = &Rc<GateListener>> {
        self.listeners.iter().filter(move |known| known.number == number)
    }

    /// Takes the place of `old`, whose listeners at other addresses are closed.
    pub fn replace(&mut self, old: Self) {
        let mut closed = old.closed;
        closed.extend(old.listeners);
        closed.retain(|listener| !self.listens_at(listener.address()));
        closed.drain(..closed.len().saturating_sub(CLOSED_MAX));
        self.closed = closed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn tables(ports: std::ops::Range<u16>) -> Tables {
        let mut tables = Tables::default();
        ports.for_each(|port| drop(tables.listen(port, at(port))));
        tables
    }

    #[test]
    fn closed_listeners_are_known_until_others_make_room() {
        let mut new = tables(2..3);
        new.replace(tables(1..3));
        assert!(new.listener(at(1)).is_some() && !new.listens_at(at(1)));
        assert_eq!(new.closed.len(), 1);
        let mut newer = tables(1..2);
        newer.replace(new);
        assert!(newer.listens_at(at(1)) && newer.listener(at(2)).is_some());
        assert_eq!(newer.closed.len(), 1);
        let mut last = tables(0..0);
        last.replace(tables(10..100));
        assert_eq!(last.closed.len(), CLOSED_MAX);
        assert!(last.listener(at(99)).is_some() && last.listener(at(10)).is_none());
    }
}

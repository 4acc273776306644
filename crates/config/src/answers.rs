//! Which site answers where, and for which other site the worker of one does TLS.
//!
//! Runs in: the launcher, as root, and the `bulkhead` command. Sees: the checked configuration. Never: sees a request.

use crate::{Config, Listener, Site};

impl Site {
    /// Whether the site answers on a listener: on those that it names, or else on all.
    pub fn answers_on(&self, listener: &Listener) -> bool {
        self.listen.is_empty() || self.listen.contains(&listener.address)
    }
}

impl Config {
    /// Whether the worker of one site, which has the certificate of a host, relays requests under TLS to another, which
    /// has a path below that host.
    pub fn relays(&self, front: &Site, other: &Site) -> bool {
        let share =
            |listener: &Listener| listener.tls && front.answers_on(listener) && other.answers_on(listener);
        front.tls.is_some()
            && other.tls.is_none()
            && other.path != "/"
            && other.hosts.iter().any(|host| front.hosts.contains(host))
            && self.listeners.iter().any(share)
    }
}

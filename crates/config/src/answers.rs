//! Which site answers where, and for which other site the worker of one does TLS.
//!
//! Runs in: the launcher, as root, and the `bulkhead` command. Sees: the checked configuration. Never: sees a request.

use std::sync::Arc;

use crate::{Config, Listener, SharedList, Site};

impl Site {
    /// Whether the site answers on a listener: on those that it names, or else on all.
    pub fn answers_on(&self, listener: &Listener) -> bool {
        self.listen.is_empty() || self.listen.contains(&listener.address)
    }
}

impl Config {
    /// The same with other sites, of which none is copied.
    pub fn with_sites(&self, sites: SharedList<Arc<Site>>) -> Self {
        let Self {
            dir,
            server,
            listeners,
            tls,
            log,
            restart,
            limits,
            conditioning,
            include,
            sites: _,
            warnings,
        } = self;
        Self {
            dir: dir.clone(),
            server: server.clone(),
            listeners: listeners.clone(),
            tls: tls.clone(),
            log: log.clone(),
            restart: restart.clone(),
            limits: limits.clone(),
            conditioning: conditioning.clone(),
            include: include.clone(),
            sites,
            warnings: warnings.clone(),
        }
    }

    /// Whether only sites differ, if anything does.
    pub fn is_same_but_for_sites(&self, other: &Self) -> bool {
        let Self {
            dir,
            server,
            listeners,
            tls,
            log,
            restart,
            limits,
            conditioning,
            include: _,
            sites: _,
            warnings: _,
        } = self;
        (dir, server, listeners, tls) == (&other.dir, &other.server, &other.listeners, &other.tls)
            && (log, restart, limits) == (&other.log, &other.restart, &other.limits)
            && *conditioning == other.conditioning
    }

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

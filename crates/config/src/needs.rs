//! How many uids a configuration needs: what the number depends on.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: decoded sites. Must never: forget a partition,
//! which would have no uid.

use crate::raw::ListedSite;
use crate::raw::site::RawSite;

/// What the number of uids depends on, of all sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) sites: usize,
    pub(crate) services: usize,
    pub(crate) connectors: usize,
    pub(crate) proxies: usize,
    pub(crate) publishers: usize,
    pub(crate) certified: usize,
}

impl Needs {
    pub(crate) fn of(sites: &[ListedSite]) -> Self {
        let mut needs = Self::default();
        sites.iter().for_each(|site| needs.add(site));
        needs
    }

    fn of_one(site: &RawSite) -> Self {
        let granted = site.services.iter().filter(|service| service.network.is_granted()).count();
        let at_servers = site.data.iter().filter(|data| data.is_at_server()).count();
        let behind = usize::from(site.routes.iter().any(|route| route.has_servers()));
        Self {
            // One with an account has that account's.
            sites: usize::from(site.worker.user.is_none()),
            services: site.services.len(),
            connectors: granted + at_servers + behind,
            proxies: site.data.len(),
            publishers: usize::from(site.templates.is_some()),
            certified: usize::from(site.tls.is_some()),
        }
    }

    /// Adds what a site needs.
    pub(crate) fn add(&mut self, site: &RawSite) {
        let one = Self::of_one(site);
        self.sites += one.sites;
        self.services += one.services;
        self.connectors += one.connectors;
        self.proxies += one.proxies;
        self.publishers += one.publishers;
        self.certified += one.certified;
    }

    /// Removes what a site needs that was added.
    pub(crate) fn remove(&mut self, site: &RawSite) {
        let one = Self::of_one(site);
        self.sites -= one.sites;
        self.services -= one.services;
        self.connectors -= one.connectors;
        self.proxies -= one.proxies;
        self.publishers -= one.publishers;
        self.certified -= one.certified;
    }
}

//! What gates and sites are sent of TLS.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: opens a certificate for anybody but the
//! signer.

use std::sync::Arc;

use config::{ClientCertificates, Listener, Resumption, Site, SiteTls, TlsVersion};
use wire::tls::{ClientAuth, Resume};
use wire::{CHALLENGES, LauncherToGate, LauncherToSite, Text};

use crate::setup::Messages;

impl Messages<'_> {
    /// What is spoken on which listener; after the listeners.
    pub fn protocols(&self) -> impl Iterator<Item = LauncherToGate> {
        let listeners = (0u16..).zip(&self.config.listeners);
        listeners
            .filter(|(_, Listener { tls, h2c, .. })| *tls || *h2c)
            .map(|(listener, &Listener { tls, h2c, .. })| LauncherToGate::Protocol { listener, tls, h2c })
    }

    /// Where there is https for the hosts of these sites.
    pub fn redirects<'s>(&self, sites: impl Iterator<Item = &'s Arc<Site>> + Clone) -> Vec<LauncherToGate> {
        let mut messages = Vec::new();

        for (index, listener) in (0u16..).zip(&self.config.listeners).filter(|(_, of)| of.redirect_to_https) {
            for site in sites.clone().filter(|site| site.answers_on(listener)) {
                let Some(port) = self.https_port(site) else { continue };
                for host in &site.hosts {
                    messages.push(redirect(index, host, "/", port));
                    if site.root.is_some() || site.vhosts.is_some() {
                        // Who asks may know of no certificate yet.
                        messages.push(redirect(index, host, CHALLENGES, 0));
                    }
                }
            }
        }
        messages
    }

    /// The port at which a site has https: the usual one, or else the first.
    fn https_port(&self, site: &Site) -> Option<u16> {
        site.tls.as_ref()?;
        let ports: Vec<u16> = self
            .config
            .listeners
            .iter()
            .filter(|listener| listener.tls && site.answers_on(listener))
            .map(|listener| listener.address.port())
            .collect();
        ports.iter().find(|port| **port == 443).or(ports.first()).copied()
    }

    /// What a site with certificates is sent before it serves; its secrets for tickets and its files come after.
    pub fn site_tls(&self, site: &SiteTls) -> LauncherToSite {
        let tls = &self.config.tls;
        LauncherToSite::Tls {
            version_min: match tls.min_version {
                TlsVersion::V12 => 0x0303,
                TlsVersion::V13 => 0x0304,
            },
            resume: match tls.resumption {
                Resumption::Tickets => Resume::Tickets,
                Resumption::Stateful => Resume::Stateful,
                Resumption::Off => Resume::Off,
            },
            client_auth: match (&site.client_ca, site.client_certificates) {
                (None, _) => ClientAuth::None,
                (Some(_), ClientCertificates::Request) => ClientAuth::Request,
                (Some(_), ClientCertificates::Require) => ClientAuth::Require,
            },
            tamper: tls.tamper_ban_ms > 0,
            hsts: Text::new(tls.hsts.as_str()),
        }
    }
}

fn redirect(listener: u16, host: &str, path: &str, port: u16) -> LauncherToGate {
    LauncherToGate::Redirect { listener, host: Text::new(host), path: Text::new(path), port }
}

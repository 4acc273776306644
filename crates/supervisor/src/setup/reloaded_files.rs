//! The files that the launcher opens for workers and data proxies, and opens again when they have changed.
//!
//! Runs in: the launcher, as root. Sees: files that the operator named. Never: reads a byte of one.

use std::path::{Path, PathBuf};

use config::{DataSource, Site};
use wire::data::LauncherToDataProxy;
use wire::{LauncherToSite, Text};

/// The files that a site's workers read, each with what they are told of it.
pub fn for_workers(site: &Site) -> Vec<(LauncherToSite, PathBuf)> {
    let text = |path: &Path| Text::new(path.to_string_lossy());
    let authorities = site.tls.iter().filter_map(|tls| tls.client_ca.as_deref()).map(|path| {
        let message = LauncherToSite::ClientAuthorities { path: text(path) };
        (message, path.to_owned())
    });
    let revoked = (0u16..).zip(site.tls.iter().flat_map(|tls| &tls.client_crl)).map(|(number, path)| {
        let message = LauncherToSite::ClientRevoked { number, path: text(path) };
        (message, path.clone())
    });
    let terms = std::iter::once(&site.terms).chain(site.routes.iter().map(|route| &route.terms));
    let users = terms.enumerate().filter_map(|(rule, terms)| {
        let auth = terms.auth.as_ref()?;
        let realm = Text::new(&auth.realm);
        let message = LauncherToSite::RuleUsers { rule: rule as u16, realm, path: text(&auth.users) };
        Some((message, auth.users.clone()))
    });
    authorities.chain(revoked).chain(users).collect()
}

/// The files that the proxy of a data source reads, each with what it is told of it.
pub fn for_data_proxy(source: &DataSource) -> Vec<(LauncherToDataProxy, PathBuf)> {
    let server = source.server();
    let password = server.and_then(|server| server.password.clone());
    let password = password.map(|path| (LauncherToDataProxy::Password {}, path));
    let statements = source.statements.clone().map(|path| (LauncherToDataProxy::Statements {}, path));
    password.into_iter().chain(for_tls(source)).chain(statements).collect()
}

/// Those that make the way to its server or another machine safe.
fn for_tls(source: &DataSource) -> Vec<(LauncherToDataProxy, PathBuf)> {
    let Some((name, secured)) = source.certificate_name().zip(source.secured()) else { return Vec::new() };
    let authorities = LauncherToDataProxy::Authorities { name: Text::new(name) };
    let mut files = vec![(authorities, secured.server_ca.to_owned())];
    if let Some(identity) = secured.identity {
        files.push((LauncherToDataProxy::Certificate {}, identity.certificate.clone()));
        files.push((LauncherToDataProxy::Key {}, identity.key.clone()));
    }
    files
}

//! The files that the launcher opens for workers, and opens again when they have changed.
//!
//! Runs in: the launcher, as root. Sees: files that the operator named. Never: reads a byte of one.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use config::Site;
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

/// Opens a regular file; another kind might keep the launcher waiting.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file")),
    }
}

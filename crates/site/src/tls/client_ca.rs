//! The authorities of clients' certificates.
//!
//! Runs in: the site worker. Sees: the operator's file, open. Never: takes a part of it for the whole.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use certificate::authorities;
use rustls::RootCertStore;

use worker::files;

/// The authorities of a file.
#[derive(Debug)]
pub struct Authorities {
    pub roots: Arc<RootCertStore>,
    /// Of the file, so that tickets of clients that were let in by another one are none.
    pub digest: [u8; 32],
}

impl Authorities {
    /// Reads an open file.
    ///
    /// # Errors
    /// The fault of the file, and how it should be.
    pub fn read(file: &OwnedFd) -> Result<Self, String> {
        let text = files::read(file, authorities::FILE_BYTES_MAX)?;
        let roots = authorities::read(&text).map_err(|fault| fault.to_string())?;
        let roots = RootCertStore::from_iter(roots);
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &text).as_ref());
        Ok(Self { roots: Arc::new(roots), digest: hash })
    }
}

//! The authorities of clients' certificates.
//!
//! Runs in: the site worker. Sees: the operator's file, open. Never: takes a part of it for the whole.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::files::open;

/// LIMIT: bytes of the file.
const BYTES_MAX: usize = 4 << 20;

/// What a file of authorities says.
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
    /// What is wrong with it, and how it should be.
    pub fn read(file: &OwnedFd) -> Result<Self, String> {
        let text = open::read(file, BYTES_MAX)?;
        let mut roots = RootCertStore::empty();
        for (number, certificate) in CertificateDer::pem_slice_iter(&text).enumerate() {
            let added = certificate.map_err(|_| "its PEM is not whole".to_owned());
            let added = added.and_then(|one| roots.add(one).map_err(|error| error.to_string()));
            added.map_err(|error| format!("certificate {} of it is broken: {error}", number + 1))?;
        }
        if roots.is_empty() {
            return Err("there is no certificate in it (PEM)".into());
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &text).as_ref());
        Ok(Self { roots: Arc::new(roots), digest: hash })
    }
}

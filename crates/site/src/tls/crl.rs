//! Lists of clients' certificates that their authorities have revoked (RFC 5280 5).
//!
//! Runs in: the site worker. Sees: the operator's files, open; what is in them an authority has signed, which is
//! checked with each certificate. Never: takes a part of a file for the whole, or a list that is over for one that
//! holds.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use aws_lc_rs::digest::{SHA256, digest};
use certificate::crl::{self, List};
use rustls_pki_types::CertificateRevocationListDer;

use worker::files;

/// The revocation lists of one file.
#[derive(Clone, Debug)]
pub struct RevocationFile {
    lists: Vec<List>,
    digest: Vec<u8>,
    /// Where it is, for people.
    path: String,
}

impl RevocationFile {
    /// Reads an open file.
    ///
    /// # Errors
    /// The fault of the file, and how it should be.
    pub fn read(file: &OwnedFd, path: &str) -> Result<Self, String> {
        let bytes = files::read(file, crl::FILE_BYTES_MAX)?;
        let digest = digest(&SHA256, &bytes).as_ref().to_vec();
        Ok(Self {
            lists: crl::read(&bytes).map_err(|fault| fault.to_string())?,
            digest,
            path: path.to_owned(),
        })
    }
}

/// The revocation lists of all files of a site, by the number of each file.
#[derive(Clone, Debug, Default)]
pub struct Lists(BTreeMap<u16, RevocationFile>);

impl Lists {
    /// Takes what a file says, in place of what it said.
    pub fn take(&mut self, number: u16, revoked: RevocationFile) {
        self.0.insert(number, revoked);
    }

    /// All of them, the newest first: of two about the same certificates the first counts.
    pub fn all(&self) -> Vec<CertificateRevocationListDer<'static>> {
        let mut all: Vec<&List> = self.0.values().flat_map(|file| &file.lists).collect();
        all.sort_by_key(|list| std::cmp::Reverse(list.since));
        all.into_iter().map(|list| list.der.clone()).collect()
    }

    /// By what it is known that they, or what is over of them, are not what they were.
    pub fn mark(&self, now: u64) -> Vec<u8> {
        let files = self.0.values().flat_map(|file| {
            let over = file.lists.iter().map(|list| u8::from(list.until <= now));
            file.digest.iter().copied().chain(over).collect::<Vec<u8>>()
        });
        files.collect()
    }

    /// When the next one of them is over.
    pub fn next_end(&self, now: u64) -> Option<u64> {
        let conn = self.0.values().flat_map(|file| &file.lists).map(|list| list.until);
        conn.filter(|until| *until > now).min()
    }

    /// The files with lists that are over.
    pub fn over(&self, now: u64) -> impl Iterator<Item = &str> {
        let files = self.0.values();
        files.filter(move |file| file.lists.iter().any(|list| list.until <= now)).map(|file| &*file.path)
    }
}

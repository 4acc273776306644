//! Lists of clients' certificates that their authorities have revoked (RFC 5280 5).
//!
//! Runs in: the site worker. Sees: the operator's files, open; what is in them an authority has signed, which is checked
//! with each certificate. Never: takes a part of a file for the whole, or a list that is over for one that holds.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use aws_lc_rs::digest::{SHA256, digest};
use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;
use webpki::{Error, OwnedCertRevocationList};

use crate::files::open;

/// LIMIT: bytes of one file; a revoked certificate takes about 40, so some 200,000 of them.
const BYTES_MAX: usize = 8 << 20;

/// What one file says.
#[derive(Clone, Debug)]
pub struct Revoked {
    lists: Vec<List>,
    digest: Vec<u8>,
    /// Where it is, for people.
    path: String,
}

#[derive(Clone, Debug)]
struct List {
    der: CertificateRevocationListDer<'static>,
    since: u64,
    until: u64,
}

impl Revoked {
    /// Reads an open file.
    ///
    /// # Errors
    /// What is wrong with it, and how it should be.
    pub fn read(file: &OwnedFd, path: &str) -> Result<Self, String> {
        let bytes = open::read(file, BYTES_MAX)?;
        let digest = digest(&SHA256, &bytes).as_ref().to_vec();
        Ok(Self { lists: lists(&bytes)?, digest, path: path.to_owned() })
    }
}

/// The lists in a file: one in DER, or any number in PEM.
fn lists(bytes: &[u8]) -> Result<Vec<List>, String> {
    // A SEQUENCE, as no text begins.
    if bytes.first() == Some(&0x30) {
        return List::read(CertificateRevocationListDer::from(bytes.to_vec())).map(|list| vec![list]);
    }
    let mut found = Vec::new();
    for (number, list) in CertificateRevocationListDer::pem_slice_iter(bytes).enumerate() {
        let list = list.map_err(|_| "its PEM is not whole".to_owned()).and_then(List::read);
        found.push(list.map_err(|what| format!("list {} of it: {what}", number + 1))?);
    }
    match found.is_empty() {
        true => Err("there is no list in it (`X509 CRL` in PEM, or one in DER)".into()),
        false => Ok(found),
    }
}

impl List {
    fn read(der: CertificateRevocationListDer<'static>) -> Result<Self, String> {
        let (since, until) = certificate::list_times(&der)?;
        OwnedCertRevocationList::from_der(&der).map_err(|error| match error {
            Error::UnsupportedDeltaCrl => {
                "it says only what has changed (a delta); a whole one is needed".to_owned()
            }
            Error::UnsupportedIndirectCrl => "it is about other authorities' certificates (indirect)".into(),
            error => format!("it is broken, or of a kind that is not supported: {error}"),
        })?;
        Ok(Self { der, since, until })
    }
}

/// What all files of a site say, by the number of each.
#[derive(Clone, Debug, Default)]
pub struct Lists(BTreeMap<u16, Revoked>);

impl Lists {
    /// Takes what a file says, in place of what it said.
    pub fn take(&mut self, number: u16, revoked: Revoked) {
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

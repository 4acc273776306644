//! Certificates and their key, in one file or two, in any order: read, checked against each other, and put in order.
//!
//! Runs in: the signer. Sees: files that the operator wrote. Never: keeps the text of a key once it is read.

use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use certificate::chain::{self, CertificateChain, ChainError};
use certificate::own::names_one_of;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, SectionKind};
use wire::tls::{CERTIFICATE_MAX, CHAIN_MAX, Holding, KeyKind, Verdict};
use zeroize::Zeroizing;

use crate::key::PrivateKey;
use crate::step::HandshakeStep;

/// LIMIT: a key and a chain of 16 certificates at their largest fit in less.
const FILE_BYTES_MAX: usize = 1 << 20;
/// How much of a file is read at first.
const FIRST_BYTES: usize = 16 << 10;

/// A key that signs, and the chain that says whose it is.
#[derive(Debug)]
pub struct CertifiedKey {
    key: PrivateKey,
    /// The site's own certificate first, then whoever signed the one before.
    pub chain: Vec<CertificateDer<'static>>,
    validity: (u64, u64),
    /// How many above the site's own are out of date.
    pub out_of_date: u16,
    /// How many certificates of the file lead nowhere, and are not sent.
    pub left_out: u16,
}

impl CertifiedKey {
    /// Reads an open file of certificates, and one with the key if there is one of its own.
    pub fn read(file: &OwnedFd, key: Option<&OwnedFd>) -> Result<Self, Verdict> {
        let text = read(file, FILE_BYTES_MAX)?;
        match key {
            None => Self::parse(&text, None),
            Some(key) => Self::parse(&text, Some(&read(key, FILE_BYTES_MAX)?)),
        }
    }

    /// Reads the text of a file of certificates, and of one with the key if there is one of its own: then whatever key
    /// is among the certificates does not count.
    pub fn parse(text: &[u8], key: Option<&[u8]>) -> Result<Self, Verdict> {
        let Sections { keys, chain } = sections(text)?;
        let keys = match key {
            None => keys,
            Some(key) => sections(key)?.keys,
        };
        let [key] = &keys[..] else {
            return Err(Verdict::NoKey);
        };
        let key = PrivateKey::read(key).ok_or(Verdict::BadKey)?;
        if chain.is_empty() {
            return Err(Verdict::NoCertificate);
        }
        if chain.len() > CHAIN_MAX || chain.iter().any(|der| der.len() > CERTIFICATE_MAX) {
            return Err(Verdict::BadCertificate);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let ordered = chain::order(&chain, |spki| spki.ends_with(key.public()), now);
        let CertificateChain { certificates, validity, out_of_date, left_out } =
            ordered.map_err(|fault| match fault {
                ChainError::Broken => Verdict::BadCertificate,
                ChainError::NotOfKey => Verdict::Mismatch,
            })?;
        let validity = validity.ok_or(Verdict::BadCertificate)?;
        Ok(Self { key, validity, chain: certificates, out_of_date, left_out })
    }

    /// The kind of its key.
    pub fn kind(&self) -> KeyKind {
        self.key.kind()
    }

    /// From when on and until when its certificate is valid, in seconds since 1970.
    pub fn validity(&self) -> (u64, u64) {
        self.validity
    }

    /// The facts about it for the launcher, where it is for these hosts.
    pub fn holding(&self, hosts: &[String]) -> Holding {
        let (not_before, not_after) = self.validity;
        let own = self.chain.first();
        let named = own.is_some_and(|own| names_one_of(own, hosts.iter().map(String::as_str)));
        Holding { kind: self.kind(), not_before, not_after, named }
    }

    /// Signs a step of a handshake.
    pub fn sign(&self, scheme: u16, step: HandshakeStep, message: &[u8]) -> Option<Vec<u8>> {
        self.key.sign(scheme, step, message)
    }
}

/// The sections of a file.
struct Sections {
    keys: Vec<Zeroizing<Vec<u8>>>,
    chain: Vec<CertificateDer<'static>>,
}

fn sections(mut text: &[u8]) -> Result<Sections, Verdict> {
    let (mut keys, mut chain) = (Vec::new(), Vec::new());
    loop {
        match pem::from_buf(&mut text) {
            Ok(None) => return Ok(Sections { keys, chain }),
            Ok(Some((SectionKind::Certificate, der))) => chain.push(CertificateDer::from(der)),
            Ok(Some((
                SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey,
                der,
            ))) => {
                keys.push(Zeroizing::new(der));
            }
            // Parameters of curves, requests: what tools leave in such files.
            Ok(Some((_, other))) => drop(Zeroizing::new(other)),
            Err(_) => return Err(Verdict::Unreadable),
        }
    }
}

/// All of a file of at most so many bytes.
///
/// Room is made as it is needed: most files have a few kilobytes, and room for the longest would have to be overwritten
/// for each.
pub(crate) fn read(file: &OwnedFd, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, Verdict> {
    let mut text = Zeroizing::new(vec![0; FIRST_BYTES.min(bytes_max + 1)]);
    let mut length = 0;
    loop {
        if length > bytes_max {
            return Err(Verdict::Unreadable);
        }
        if length == text.len() {
            // Never by growing the vector, which would leave a copy of what may be a key.
            let mut more = Zeroizing::new(vec![0; (2 * length).min(bytes_max + 1)]);
            more[..length].copy_from_slice(&text);
            text = more;
        }
        match rustix::io::read(file, &mut text[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Verdict::Unreadable),
        }
    }
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    #[test]
    fn a_file_is_read_as_far_as_it_may_go() {
        const MOST: usize = 100_000;
        for length in
            [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 4 * FIRST_BYTES, MOST - 1, MOST, MOST + 1]
        {
            let memory = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let mut file = std::fs::File::from(memory);
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            file.write_all(&content).unwrap();
            file.rewind().unwrap();
            let text = read(&file.into(), MOST);
            assert_eq!(text.ok().map(|text| text.to_vec()), (length <= MOST).then_some(content), "{length}");
        }
    }
}

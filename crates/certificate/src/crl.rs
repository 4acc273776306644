//! Lists of certificates that their authorities have revoked (RFC 5280 5).
//!
//! Runs in: site workers. Input: files that the operator has installed, which authorities have written. Never: takes a
//! part of a file for the whole. Whether an authority has signed a list is checked with each certificate.

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject as _;
use webpki::{Error, OwnedCertRevocationList};
use x509_cert::time::Time;

use crate::der;

/// The tag of an INTEGER.
const INTEGER: u8 = 2;

/// LIMIT: bytes of one file; a revoked certificate takes about 40, so some 200,000 of them.
pub const FILE_BYTES_MAX: usize = 8 << 20;

/// The faults of a file of lists.
#[derive(Debug, thiserror::Error)]
pub enum CrlFault {
    /// There is nothing to be read.
    #[error("there is no list in it (`X509 CRL` in PEM, or one in DER)")]
    Empty,
    /// One of the lists in PEM is bad.
    #[error("list {number} of it: {fault}")]
    InPem {
        /// Which one, from 1 on.
        number: usize,
        /// The fault of that list.
        fault: Box<CrlFault>,
    },
    /// A list has a beginning and no end.
    #[error("its PEM is not whole")]
    Torn,
    /// The list is not one in DER.
    #[error("it is broken")]
    Broken,
    /// RFC 5280 5.1.2.1: without a version, there are no extensions.
    #[error("it is of version 1; have it made as version 2, for `openssl ca` by `crlnumber`")]
    Version1,
    /// The list would hold for ever.
    #[error("it does not say until when it holds")]
    NoEnd,
    /// RFC 5280 5.2.4.
    #[error("it says only what has changed (a delta); a whole one is needed")]
    Delta,
    /// RFC 5280 5.2.5.
    #[error("it is about other authorities' certificates (indirect)")]
    Indirect,
    /// The library refuses the list.
    #[error("it is broken, or of a kind that is not supported: {0}")]
    Unsupported(Error),
}

/// One list.
#[derive(Clone, Debug)]
pub struct List {
    /// The list itself.
    pub der: CertificateRevocationListDer<'static>,
    /// From when on it holds, in seconds since 1970.
    pub since: u64,
    /// Until when it holds.
    pub until: u64,
}

impl List {
    fn read(der: CertificateRevocationListDer<'static>) -> Result<Self, CrlFault> {
        let (since, until) = times(&der)?;
        OwnedCertRevocationList::from_der(&der).map_err(|error| match error {
            Error::UnsupportedDeltaCrl => CrlFault::Delta,
            Error::UnsupportedIndirectCrl => CrlFault::Indirect,
            error => CrlFault::Unsupported(error),
        })?;
        Ok(Self { der, since, until })
    }
}

/// The lists in a file: one in DER, or any number in PEM.
///
/// # Errors
/// There is no list in the file, or one of them cannot be used.
pub fn read(file: &[u8]) -> Result<Vec<List>, CrlFault> {
    // A SEQUENCE, as no text begins.
    if file.first() == Some(&0x30) {
        return List::read(CertificateRevocationListDer::from(file.to_vec())).map(|list| vec![list]);
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(file).enumerate().map(|(at, list)| {
        let list = list.map_err(|_| CrlFault::Torn).and_then(List::read);
        list.map_err(|fault| CrlFault::InPem { number: at + 1, fault: Box::new(fault) })
    });
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    if lists.is_empty() { Err(CrlFault::Empty) } else { Ok(lists) }
}

/// From when on and until when a list holds (RFC 5280 5.1.2.4 and 5), in seconds since 1970.
///
/// # Errors
/// It is no list, is of version 1, or does not say until when.
pub fn times(der: &[u8]) -> Result<(u64, u64), CrlFault> {
    let list = der::parts(der).map_err(|_| CrlFault::Broken)?;
    let fields = der::parts(list.first().ok_or(CrlFault::Broken)?).map_err(|_| CrlFault::Broken)?;
    // Version 1 is the one that is left out.
    if fields.first().and_then(|version| version.first()) != Some(&INTEGER) {
        return Err(CrlFault::Version1);
    }
    let [_version, _algorithm, _issuer, since, until, ..] = &fields[..] else { return Err(CrlFault::Broken) };
    let seconds = |der| der::decode::<Time>(der).map(|time| time.to_unix_duration().as_secs());
    let until = seconds(until).map_err(|_| CrlFault::NoEnd)?;
    Ok((seconds(since).map_err(|_| CrlFault::Broken)?, until))
}

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, date_time_ymd,
    };

    use super::*;

    fn made() -> rcgen::CertificateRevocationList {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 2),
            next_update: date_time_ymd(2100, 1, 2),
            crl_number: rcgen::SerialNumber::from(7),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer = Issuer::new(CertificateParams::new([]).unwrap(), KeyPair::generate().unwrap());
        params.signed_by(&issuer).unwrap()
    }

    #[test]
    fn lists_in_both_forms() {
        let (list, pem) = (made(), made().pem().unwrap());
        let [one] = &read(list.der()).unwrap()[..] else { panic!("one list") };
        assert_eq!((&one.der, one.since, one.until), (list.der(), 1_577_923_200, 4_102_531_200));
        assert_eq!(read(pem.repeat(3).as_bytes()).unwrap().len(), 3);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let fault = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        let (list, pem) = (made(), made().pem().unwrap());
        assert!(fault(b"").contains("no list"));
        assert_eq!(fault(&list.der()[..9]), "it is broken");
        let torn = format!("{pem}{}", &pem[..pem.len() - 40]);
        assert_eq!(fault(torn.as_bytes()), "list 2 of it: its PEM is not whole");
    }
}

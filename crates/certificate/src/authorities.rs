//! Files of authorities, which clients' certificates are checked by.
//!
//! Runs in: site workers, and the check of a configuration. Input: a file that the operator has installed. Never: takes
//! a part of it for the whole.

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, TrustAnchor};

/// LIMIT: bytes of the file; the authorities of browsers, some 150, have 250 KiB.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// The faults of a file of authorities.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesFault {
    /// There is nothing to be read.
    #[error("there is no certificate in it (PEM)")]
    Empty,
    /// A certificate has a beginning and no end.
    #[error("certificate {number} of it is broken: its PEM is not whole")]
    Torn {
        /// Which one, from 1 on.
        number: usize,
    },
    /// A certificate is none, or none of an authority.
    #[error("certificate {number} of it is broken: {source}")]
    Broken {
        /// Which one, from 1 on.
        number: usize,
        /// The library's error.
        source: webpki::Error,
    },
}

/// The authorities in a file.
///
/// # Errors
/// There is none, or one of them cannot be used.
pub fn read(file: &[u8]) -> Result<Vec<TrustAnchor<'static>>, AuthoritiesFault> {
    let certificates = CertificateDer::pem_slice_iter(file).zip(1..).map(|(certificate, number)| {
        let certificate = certificate.map_err(|_| AuthoritiesFault::Torn { number })?;
        let anchor = webpki::anchor_from_trusted_cert(&certificate);
        anchor.map(|anchor| anchor.to_owned()).map_err(|source| AuthoritiesFault::Broken { number, source })
    });
    let authorities = certificates.collect::<Result<Vec<_>, _>>()?;
    if authorities.is_empty() { Err(AuthoritiesFault::Empty) } else { Ok(authorities) }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn every_certificate_counts() {
        let own = CertificateParams::new(["a.test".to_owned()]).unwrap();
        let pem = own.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let said =
            |text: &str| read(text.as_bytes()).map(|found| found.len()).map_err(|fault| fault.to_string());
        assert_eq!(said(&pem.repeat(2)), Ok(2));
        assert_eq!(said("nothing"), Err("there is no certificate in it (PEM)".to_owned()));
        assert!(said(&pem[..100]).unwrap_err().contains("its PEM is not whole"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(said(&(pem + broken)).unwrap_err().starts_with("certificate 2 of it is broken: "));
    }
}

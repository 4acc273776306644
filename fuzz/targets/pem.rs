//! Files of certificates and of lists of revoked ones: what is read of PEM, and written anew, is read the same.

use certificate::crl;
use base64ct::{Base64, Encoding as _};
use rustls_pki_types::pem::{PemObject as _, SectionKind, from_buf};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

pub fn fuzz(data: &[u8]) {
    let mut certificates = Vec::new();
    let (mut rest, mut lists) = (data, Vec::new());
    while let Ok(Some((kind, der))) = from_buf(&mut rest) {
        match kind {
            SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
            SectionKind::Crl => lists.push(CertificateRevocationListDer::from(der)),
            _ => {}
        }
    }
    let whole: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(data).collect();
    if let Ok(whole) = whole {
        assert_eq!(whole, certificates);
    }
    let text: String = certificates.iter().map(|der| pem("CERTIFICATE", der)).collect();
    let again: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    assert_eq!(again.expect("it is whole"), certificates);
    let Ok(read) = crl::read(data) else { return };
    for list in &read {
        assert_eq!(crl::times(&list.der).expect("it was read"), (list.since, list.until));
    }
    let text: String = read.iter().map(|list| pem("X509 CRL", &list.der)).collect();
    let again = crl::read(text.as_bytes()).expect("each of them was read");
    assert!(again.iter().map(|list| &list.der).eq(read.iter().map(|list| &list.der)));
    if data.first() != Some(&0x30) {
        assert!(read.iter().map(|list| &list.der).eq(&lists));
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = Base64::encode_string(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

//! Certificates and the responders that they name (`stapler::subject`), as the stapler gets them from the signer.
//!
//! The input is a certificate, tried with itself and with an authority's as its issuer; or a URL.

use rustls_pki_types::CertificateDer;
use stapler::responder::Responder;
use stapler::subject::Subject;

fn looks_right(responder: &Responder) {
    assert!(responder.port != 0 && responder.target.starts_with('/'));
    let printable = |text: &str| text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    assert!(printable(&responder.authority) && printable(&responder.target), "{responder}");
    assert_eq!(Responder::parse(&responder.to_string()).as_ref(), Ok(responder));
}

pub fn fuzz(data: &[u8]) {
    if let Some(responder) = std::str::from_utf8(data).ok().and_then(|url| Responder::parse(url).ok()) {
        looks_right(&responder);
    }
    let own = CertificateDer::from(data.to_vec());
    let issuer = CertificateDer::from(&include_bytes!("../seeds/ocsp_chain/1-issuer.der")[..]);
    for chain in [vec![own.clone()], vec![own.clone(), issuer], vec![own.clone(), own]] {
        if let Ok(Some(subject)) = Subject::of(&chain) {
            looks_right(&subject.responder);
            assert!(!subject.question().is_empty());
        }
    }
}

//! Certificates of clients, in a site worker and in services, and the header that passes them on.

use certificate::{CLIENT_CERT, ClientCertificate, header_value};
use http::{HeaderMap, HeaderValue};

fn of(value: HeaderValue) -> Option<ClientCertificate> {
    ClientCertificate::of(&HeaderMap::from_iter([(CLIENT_CERT, value)]))
}

pub fn fuzz(data: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(data) {
        let _ = of(value);
    }
    let read = ClientCertificate::parse(data);
    assert_eq!(of(header_value(data)), read, "what is passed on is what was shown");
    if let Some(read) = read {
        assert!(read.serial().len() % 2 == 0 && read.fingerprint().len() == 64);
        assert!(read.pem().lines().all(|line| line.len() <= 64));
    }
}

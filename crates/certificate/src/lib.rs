//! The facts in a client's certificate, and the header in which they are passed on.
//!
//! Runs in: site workers, which write the header, and services, which read it; in the signer and `bulkhead check`, for
//! what a site's own says. Untrusted input: in the first two, a certificate that an authority of the operator's has
//! signed, for whoever asked it; in services, the header. Does no input or output. Never: decides whether a certificate
//! is good; that was done in the handshake, before it came here.
//!
//! Source: RFC 9440 (the header), RFC 5280 4.1 (the certificate), RFC 4514 (names as text).

pub mod authorities;
pub mod chain;
pub mod crl;
pub mod der;
pub mod own;

use std::time::{SystemTime, UNIX_EPOCH};

use base64ct::{Base64, Encoding as _};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

/// The header with the certificate (RFC 9440 2.2). A process that passes requests on removes it from the client's
/// fields.
pub const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
/// The header with the certificates between it and the authority (RFC 9440 2.3); never set here, and always removed.
pub const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");

/// LIMIT: bytes of a certificate that is read; those of authorities have 1 to 2 KiB.
pub const DER_BYTES_MAX: usize = 16 * 1024;

/// The certificate that a client has shown, and for whose key it has proved to have the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    der: Vec<u8>,
    subject: String,
    issuer: String,
    serial: String,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl ClientCertificate {
    /// Reads a certificate; `None` if it is none, or longer than [`DER_BYTES_MAX`].
    pub fn parse(der: &[u8]) -> Option<Self> {
        if der.len() > DER_BYTES_MAX {
            return None;
        }
        let parsed = der::decode::<x509_cert::Certificate>(der).ok()?;
        let about = parsed.tbs_certificate;
        Some(Self {
            der: der.to_vec(),
            subject: about.subject.to_string(),
            issuer: about.issuer.to_string(),
            serial: hexadecimal(without_sign(about.serial_number.as_bytes())),
            not_before: UNIX_EPOCH + about.validity.not_before.to_unix_duration(),
            not_after: UNIX_EPOCH + about.validity.not_after.to_unix_duration(),
        })
    }

    /// The one that the headers of a request name; `None` if there is none, or more than one, or it cannot be read.
    ///
    /// SECURITY: to be asked only about requests that come from who removes the header from what clients send.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CLIENT_CERT).iter();
        let value = values.next().filter(|_| values.next().is_none())?;
        // RFC 8941 3.3.5: a byte sequence is base64 between colons.
        let text = value.to_str().ok()?.strip_prefix(':')?.strip_suffix(':')?;
        if text.len() > DER_BYTES_MAX.div_ceil(3) * 4 {
            return None;
        }
        Self::parse(&Base64::decode_vec(text).ok()?)
    }

    /// Whose it is, as in `CN=ann,O=Example` (RFC 4514: the narrowest first).
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The name of the issuer, in the same form.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Its number among those of its issuer, in hexadecimal digits, upper case, two for each byte.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// From when on it is good.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Until when it is good.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The SHA-256 of the whole certificate, in hexadecimal digits, lower case.
    pub fn fingerprint(&self) -> String {
        hexadecimal(&Sha256::digest(&self.der)).to_ascii_lowercase()
    }

    /// The certificate itself.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The certificate as PEM (RFC 7468 5.1).
    pub fn pem(&self) -> String {
        let text = Base64::encode_string(&self.der);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            pem.extend([line, "\n"]);
            rest = more;
        }
        pem + "-----END CERTIFICATE-----\n"
    }
}

/// The value of [`CLIENT_CERT`] for a certificate.
pub fn header_value(der: &[u8]) -> HeaderValue {
    let text = format!(":{}:", Base64::encode_string(der));
    HeaderValue::try_from(text).expect("invariant: base64 and colons may stand in a header")
}

/// The bytes of a number, without the one that DER puts before a high bit; as other programs show it.
fn without_sign(number: &[u8]) -> &[u8] {
    match number {
        [0, rest @ ..] if !rest.is_empty() => rest,
        whole => whole,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, DnType, KeyPair, SerialNumber, date_time_ymd};

    use super::*;

    fn ann() -> Vec<u8> {
        numbered(&[0x0a, 0xff, 0x01])
    }

    fn numbered(serial: &[u8]) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "ann\r\nX: y");
        params.serial_number = Some(SerialNumber::from_slice(serial));
        params.not_before = date_time_ymd(2020, 1, 2);
        params.not_after = date_time_ymd(2100, 1, 2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn of(values: &[HeaderValue]) -> Option<ClientCertificate> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CLIENT_CERT, value.clone());
        }
        ClientCertificate::of(&headers)
    }

    #[test]
    fn a_certificate_says_what_it_was_made_with() {
        let der = ann();
        let found = of(&[header_value(&der)]).unwrap();
        assert_eq!(found.der(), der);
        assert!(found.subject().starts_with("CN=ann"), "{}", found.subject());
        assert!(found.subject().ends_with("O=Example\\, Inc."), "{}", found.subject());
        assert_eq!(found.issuer(), found.subject());
        assert_eq!(found.serial(), "0AFF01");
        assert_eq!(found.not_before(), UNIX_EPOCH + Duration::from_secs(1_577_923_200));
        assert_eq!(found.not_after(), UNIX_EPOCH + Duration::from_secs(4_102_531_200));
        assert_eq!(found.fingerprint().len(), 64);
        let pem = found.pem();
        assert!(pem.lines().all(|line| line.len() <= 64), "{pem}");
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        assert_eq!(Base64::decode_vec(&body).unwrap(), der);
    }

    #[test]
    fn a_certificate_with_many_names_is_read_and_a_huge_one_is_not() {
        let named = |count: usize| {
            let names = (0..count).map(|number| format!("name-{number:04}.a.test"));
            let params = CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        let (long, huge) = (named(700), named(1000));
        assert!(long.len() < DER_BYTES_MAX && huge.len() > DER_BYTES_MAX);
        assert!(ClientCertificate::parse(&long).is_some() && of(&[header_value(&long)]).is_some());
        assert!(ClientCertificate::parse(&huge).is_none() && of(&[header_value(&huge)]).is_none());
    }

    #[test]
    fn a_serial_number_has_no_byte_for_its_sign() {
        for (serial, shown) in [(&[0x9f, 0x55][..], "9F55"), (&[0x00], "00"), (&[0x80], "80")] {
            assert_eq!(ClientCertificate::parse(&numbered(serial)).unwrap().serial(), shown);
        }
    }

    #[test]
    fn what_is_no_such_header_names_nobody() {
        let good = header_value(&ann());
        let text = good.to_str().unwrap();
        let bad = [
            "",
            ":",
            "::",
            text.trim_matches(':'),
            &text[..text.len() - 1],
            &text[1..],
            &format!("{text}, {text}"),
            &format!("{};a=1", text),
            &text.replacen('M', "N", 1),
        ];
        for bad in bad {
            assert_eq!(of(&[HeaderValue::from_str(bad).unwrap()]), None, "{bad}");
        }
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[good.clone(), good]), None, "two of them");
    }

    #[test]
    fn every_shortened_or_lengthened_certificate_is_none() {
        let mut der = ann();
        for end in 0..der.len() {
            assert_eq!(ClientCertificate::parse(&der[..end]), None, "{end}");
        }
        der.push(0);
        assert_eq!(ClientCertificate::parse(&der), None);
        assert_eq!(ClientCertificate::parse(&vec![0x30; DER_BYTES_MAX + 1]), None);
    }
}

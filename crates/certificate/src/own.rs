//! A site's own certificate: until when it is valid, and whether it names one of the site's hosts.
//!
//! Runs in: the signer, and `bulkhead check`. Input: certificates that the operator has installed. Never: takes the
//! common name for a host (RFC 9525 4).

use rustls_pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use crate::der;

/// From when on and until when a certificate is valid, in seconds since 1970; `None` if it cannot be read.
pub fn validity(der: &[u8]) -> Option<(u64, u64)> {
    Some(validity_of(&der::decode::<x509_cert::Certificate>(der).ok()?))
}

/// The same of one that was read.
pub(crate) fn validity_of(parsed: &x509_cert::Certificate) -> (u64, u64) {
    let validity = &parsed.tbs_certificate.validity;
    let [since, until] =
        [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs());
    (since, until)
}

/// Whether a certificate names one of `hosts`, as these are in a configuration: names, `*.example.org`, addresses with
/// IPv6 in brackets, or `*`, which any certificate may be for.
pub fn names_one_of<'h>(der: &CertificateDer<'_>, mut hosts: impl Iterator<Item = &'h str>) -> bool {
    EndEntityCert::try_from(der).is_ok_and(|own| hosts.any(|host| names(&own, host)))
}

/// Which of `hosts` a certificate names, in the same sense.
pub fn named(der: &CertificateDer<'_>, hosts: &[&str]) -> Vec<usize> {
    let Ok(own) = EndEntityCert::try_from(der) else { return Vec::new() };
    hosts.iter().enumerate().filter(|(_, host)| names(&own, host)).map(|(at, _)| at).collect()
}

/// The DNS names of a certificate.
pub fn dns_names(der: &CertificateDer<'_>) -> Vec<String> {
    let own = EndEntityCert::try_from(der);
    own.map(|own| own.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
}

fn names(own: &EndEntityCert<'_>, host: &str) -> bool {
    match host.strip_prefix('*') {
        Some("") => true,
        // A part of these hosts may be what is meant.
        Some(suffix) => own.valid_dns_names().any(|name| ends_with(name, suffix)),
        None => {
            let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']'));
            name.is_ok_and(|name| own.verify_is_valid_for_subject_name(&name).is_ok())
        }
    }
}

fn ends_with(name: &str, suffix: &str) -> bool {
    let at = name.len().checked_sub(suffix.len());
    at.and_then(|at| name.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

/// Which of the certificates of a file is nobody's issuer: the site's own, unless the file is wrong.
pub fn first<'c>(chain: &'c [CertificateDer<'static>]) -> Option<&'c CertificateDer<'static>> {
    let name = |der: &CertificateDer<'_>, of: fn(&EndEntityCert<'_>) -> Vec<u8>| {
        EndEntityCert::try_from(der).ok().map(|parsed| of(&parsed))
    };
    let is_issuer = |der: &CertificateDer<'_>| {
        let subject = name(der, |of| of.subject().to_vec());
        let mut others = chain.iter().filter(|other| *other != der);
        others.any(|other| name(other, |of| of.issuer().to_vec()) == subject)
    };
    chain.iter().find(|der| !is_issuer(der))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    fn made(names: &[&str]) -> CertificateDer<'static> {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "common.test");
        params.not_before = date_time_ymd(2020, 1, 2);
        params.not_after = date_time_ymd(2100, 1, 2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn names_are_compared_as_clients_compare_them() {
        let cases: [(&[&str], &str, bool); 17] = [
            (&["a.test"], "a.test", true),
            (&["A.Test"], "a.test", true),
            (&["b.test", "a.test"], "a.test", true),
            (&["a.test"], "b.test", false),
            (&["a.test"], "x.a.test", false),
            (&["*.a.test"], "x.a.test", true),
            (&["*.a.test"], "a.test", false),
            (&["*.a.test"], "y.x.a.test", false),
            (&["a.test"], "common.test", false),
            (&[], "common.test", false),
            (&["127.0.0.1"], "127.0.0.1", true),
            (&["127.0.0.2"], "127.0.0.1", false),
            (&["::1"], "[::1]", true),
            (&["*.a.test"], "*.a.test", true),
            (&["b.a.test"], "*.a.test", true),
            (&["a.test"], "*.a.test", false),
            (&["b.test"], "*", true),
        ];
        for (names, host, expected) in cases {
            assert_eq!(names_one_of(&made(names), [host].into_iter()), expected, "{names:?} {host}");
        }
        assert!(names_one_of(&made(&["a.test"]), ["b.test", "a.test"].into_iter()));
        assert_eq!(named(&made(&["a.test", "c.test"]), &["b.test", "a.test", "*"]), [1, 2]);
        assert_eq!(dns_names(&made(&["a.test", "*.c.test"])), ["a.test", "*.c.test"]);
        assert!(!names_one_of(&made(&["a.test"]), std::iter::empty()));
        assert!(!names_one_of(&CertificateDer::from(vec![0x30, 0]), ["a.test"].into_iter()));
    }

    #[test]
    fn its_time_is_what_it_was_made_with() {
        assert_eq!(validity(&made(&["a.test"])), Some((1_577_923_200, 4_102_531_200)));
        assert_eq!(validity(&[0x30, 0]), None);
    }

    #[test]
    fn the_own_one_is_found_wherever_it_stands() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority = params.self_signed(&key).unwrap().der().clone();
        let own = CertificateParams::new(["a.test".to_owned()]).unwrap();
        let own =
            own.signed_by(&KeyPair::generate().unwrap(), &Issuer::new(params, key)).unwrap().der().clone();
        assert_eq!(first(&[own.clone(), authority.clone()]), Some(&own));
        assert_eq!(first(&[authority.clone(), own.clone()]), Some(&own));
        assert_eq!(first(std::slice::from_ref(&authority)), Some(&authority));
        assert_eq!(first(&[]), None);
    }
}

//! A responder's URL, as a certificate names it.
//!
//! Runs in: the stapler; pure. Untrusted input: URLs of certificates, which an authority has written and the operator
//! has installed. Must never: let through anything but a host, a port and a path.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// LIMIT: bytes of a URL; those of authorities have about 30.
const URL_BYTES_MAX: usize = 1024;

/// The responder that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    /// By name or address.
    pub host: Host,
    /// At which port.
    pub port: u16,
    /// Host and port as the `Host` header says them.
    pub authority: String,
    /// Path and query.
    pub target: String,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Its address is in the certificate.
    Address(IpAddr),
    /// Its name has to be looked up.
    Name(String),
}

impl Responder {
    /// Reads a URL.
    ///
    /// # Errors
    /// The fault of the URL, in words that continue "its responder".
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        if url.len() > URL_BYTES_MAX {
            return Err("has a URL of more than 1024 bytes");
        }
        if !url.is_ascii() {
            return Err("has a URL that is not ASCII");
        }
        let uri: Uri = url.parse().map_err(|_| "is no URL")?;
        // RFC 6960 A.1. A signed answer needs no TLS, and TLS would need a certificate whose state had to be asked for.
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err("is not asked by `http://`, the only way that is supported");
        }
        let authority = uri.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("has a user in its URL");
        }
        Ok(Self {
            host: host(authority.host()).ok_or("has a host that is neither a name nor an address")?,
            port: port(authority).ok_or("has a port that is none")?,
            authority: authority.as_str().to_owned(),
            // The path of `http://host?query` is `/`, which its text does not say.
            target: uri.query().map_or(uri.path().to_owned(), |query| format!("{}?{query}", uri.path())),
        })
    }
}

impl fmt::Display for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.target)
    }
}

fn host(text: &str) -> Option<Host> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Some(inner) = bracketed {
        return inner.parse().ok().map(|address| Host::Address(IpAddr::V6(address)));
    }
    if let Ok(address) = text.parse() {
        return Some(Host::Address(IpAddr::V4(address)));
    }
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let whole = !name.is_empty() && name.len() <= 253 && name.bytes().all(letter);
    whole.then_some(Host::Name(name))
}

fn port(authority: &Authority) -> Option<u16> {
    match authority.port() {
        Some(port) => Some(port.as_u16()).filter(|port| *port != 0),
        // `host:` is a port that is empty; one that is too large is no port to the library either.
        None => (!authority.as_str().rsplit(']').next()?.contains(':')).then_some(80),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_responders() {
        let name = |name: &str| Host::Name(name.to_owned());
        let cases = [
            ("http://ocsp.example.test", name("ocsp.example.test"), 80, "/"),
            ("http://OCSP.example.test./a/b?c", name("ocsp.example.test"), 80, "/a/b?c"),
            ("http://127.0.0.1:8080/", Host::Address([127, 0, 0, 1].into()), 8080, "/"),
            ("http://[::1]:81/x", Host::Address("::1".parse().unwrap()), 81, "/x"),
            ("http://h?q", name("h"), 80, "/?q"),
            ("http://[::1]", Host::Address("::1".parse().unwrap()), 80, "/"),
        ];
        for (url, host, port, target) in cases {
            let found = Responder::parse(url).unwrap();
            assert_eq!((found.host, found.port, found.target.as_str()), (host, port, target), "{url}");
        }
    }

    #[test]
    fn what_is_no_url_of_a_responder() {
        for url in [
            "",
            "/",
            "ocsp.example.test",
            "https://ocsp.example.test/",
            "ldap://ocsp.example.test/",
            "http://",
            "http:///x",
            "http://user@host/",
            "http://host:0/",
            "http://host:65536/",
            "http://host:/",
            "http://ho%73t/",
            "http://[::1/",
            "http://a b/",
            "http://host/\u{e9}",
            "http://host/\r\nx: y",
        ] {
            assert!(Responder::parse(url).is_err(), "{url}");
        }
        assert!(Responder::parse(&format!("http://host/{}", "x".repeat(1024))).is_err());
    }
}

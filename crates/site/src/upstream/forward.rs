//! What a server behind the site is told of a request: its headers, without those that belong to one connection or
//! that only we may say.
//!
//! Runs in: the site worker, under the site's uid; pure. Untrusted input: headers of requests. Must never: pass on what
//! a client says of itself in our name, or what two readers could understand differently.

use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};

use crate::partition::Ends;
use crate::relay::remove_not_passed_on;
use crate::upgrade;

const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What names such as these say is ours to say, and believed where it is.
const OURS: &str = "x-forwarded-";
const ALSO_OURS: [HeaderName; 2] = [HeaderName::from_static("x-real-ip"), HeaderName::from_static("proxy")];

/// Makes a client's request one for a server behind the site: origin form, one host, only its own headers.
pub(crate) fn prepare<B>(request: &mut Request<B>, ends: Ends) {
    let host = host_of(request);
    let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = http::Version::HTTP_11;
    let upgrade = upgrade::asked(request.extensions());
    let headers = request.headers_mut();
    clean(headers);
    headers.insert(header::HOST, host.clone());
    say(headers, ends, host);
    if let Some(upgrade) = upgrade {
        upgrade::ask(headers, upgrade);
    }
}

/// RFC 9110 9.2.1: what changes nothing may be asked twice.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The host that a request is for, which may have come in its target.
pub(crate) fn host_of<B>(request: &Request<B>) -> HeaderValue {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let named = authority.and_then(|text| HeaderValue::from_str(text).ok());
    let sent = request.headers().get(header::HOST).cloned();
    named.or(sent).unwrap_or(HeaderValue::from_static(""))
}

/// Removes what is of one connection, what is ours to say, and names that CGI would take for others.
pub(crate) fn clean(headers: &mut HeaderMap) {
    remove_not_passed_on(headers);
    // We have said `100 Continue` by the time that a body is read.
    headers.remove(header::EXPECT);
    let is_ours = |name: &HeaderName| name.as_str().starts_with(OURS) || name.as_str().contains('_');
    let ours: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in ours.iter().chain(&ALSO_OURS) {
        headers.remove(name);
    }
}

fn say(headers: &mut HeaderMap, ends: Ends, host: HeaderValue) {
    let scheme = ends.scheme();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set(header::FORWARDED, forwarded(ends.peer, scheme, host.to_str().unwrap_or("")));
    set(X_FORWARDED_FOR, ends.peer.ip().to_canonical().to_string());
    set(X_FORWARDED_PROTO, scheme.into());
    headers.insert(X_FORWARDED_HOST, host);
}

/// RFC 7239 4: who asked, how, and for what.
fn forwarded(peer: SocketAddr, scheme: &str, host: &str) -> String {
    let node = match peer.ip().to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    // A quoted string; a host that could end it is left out.
    let plain = !host.is_empty() && !host.contains(['"', '\\']);
    let host = if plain { format!(";host=\"{host}\"") } else { String::new() };
    format!("for={node};proto={scheme}{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_not_left_out_by_the_client() {
        let lines = [("connection", "client-cert, x-own"), ("client-cert", ":AA==:"), ("x-own", "1")];
        let request = prepared(&lines, "/", "192.0.2.1:5");
        assert_eq!(request.headers().get("client-cert").unwrap(), ":AA==:");
        assert!(!request.headers().contains_key("x-own"));
    }

    fn ends(peer: &str) -> Ends {
        Ends { peer: peer.parse().unwrap(), local: "127.0.0.1:80".parse().unwrap(), tls: true }
    }

    fn prepared(lines: &[(&str, &str)], uri: &str, peer: &str) -> Request<()> {
        let mut request = Request::builder().uri(uri).body(()).unwrap();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        prepare(&mut request, ends(peer));
        request
    }

    #[test]
    fn what_a_client_says_in_our_name_is_not_passed_on() {
        let request = prepared(
            &[
                ("host", "a.example"),
                ("x-forwarded-for", "6.6.6.6"),
                ("x-forwarded-server", "evil"),
                ("x-real-ip", "6.6.6.6"),
                ("forwarded", "for=6.6.6.6"),
                ("x_forwarded_for", "6.6.6.6"),
                ("proxy", "http://evil/"),
                ("bulkhead-client", "6.6.6.6:1"),
                ("connection", "close, x-own"),
                ("x-own", "1"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("expect", "100-continue"),
                ("accept", "*/*"),
            ],
            "/p?q",
            "192.0.2.7:4000",
        );
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["accept", "forwarded", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]
        );
        assert_eq!(request.headers()["forwarded"], "for=192.0.2.7;proto=https;host=\"a.example\"");
        assert_eq!(request.headers()["x-forwarded-for"], "192.0.2.7");
        assert_eq!(request.uri(), "/p?q");
    }

    #[test]
    fn a_target_with_a_host_becomes_origin_form_and_its_host_counts() {
        let request = prepared(&[("host", "other.example")], "https://b.example/x", "[2001:db8::1]:9");
        assert_eq!(request.uri(), "/x");
        assert_eq!(request.headers()["host"], "b.example");
        assert_eq!(request.headers()["forwarded"], "for=\"[2001:db8::1]\";proto=https;host=\"b.example\"");
    }
}

//! The header fields of what is passed on, in both directions: [`request::fields`] says which.
//!
//! Runs in: the site worker, under the site's uid; pure. Untrusted input: headers of requests and answers. Must never:
//! pass on what a client says of itself in our name, or what two readers could understand differently.

use certificate::CLIENT_CERT;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Version};
use request::fields::{self, ForwardedOrigin};

use crate::http::conn_info::ConnInfo;
use crate::http::websocket;

pub(crate) use request::fields::{CLIENT, clean_answer, clean_trailers, remove_forwarded};

/// The headers that the operator sets in place of the client, for the backend of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderChanges {
    /// Set, or taken away where the value is empty; later ones count.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// The part of the path that was taken away.
    pub prefix: Option<HeaderValue>,
}

/// The name by which servers tell each other of a prefix that was taken away.
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

impl HeaderChanges {
    fn apply(self, headers: &mut HeaderMap) {
        for (name, value) in self.set {
            match value.is_empty() {
                true => drop(headers.remove(name)),
                false => drop(headers.insert(name, value)),
            }
        }
        headers.extend(self.prefix.map(|prefix| (X_FORWARDED_PREFIX, prefix)));
    }
}

/// Makes a client's request one for those behind us: origin form, one host, only its own fields, and ours.
pub(crate) fn prepare<B>(request: &mut Request<B>, conn: ConnInfo) {
    let host = settle_host(request, conn);
    *request.version_mut() = Version::HTTP_11;
    let upgrade = websocket::asked(request.extensions());
    let changes = request.extensions_mut().remove::<HeaderChanges>();
    let headers = request.headers_mut();
    fields::clean_request_except(headers, &CLIENT_CERT);
    fields::set_forwarded(headers, ForwardedOrigin { peer: conn.peer, scheme: conn.scheme() }, Some(host));
    // After what a client may not say has gone: the operator may.
    changes.unwrap_or_default().apply(headers);
    if let Some(upgrade) = upgrade {
        websocket::ask(headers, upgrade);
    }
}

/// Makes the target a path and `Host` its host: our own address, where HTTP/1.0 has named none.
pub(crate) fn settle_host<B>(request: &mut Request<B>, conn: ConnInfo) -> HeaderValue {
    fields::settle_host(request).unwrap_or_else(|| {
        let host = HeaderValue::try_from(conn.local.to_string());
        let host = host.unwrap_or(HeaderValue::from_static("localhost"));
        request.headers_mut().insert(header::HOST, host.clone());
        host
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(lines: &[(&str, &str)], uri: &str) -> Request<()> {
        let mut request = Request::builder().uri(uri).body(()).unwrap();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        let conn = ConnInfo {
            peer: "192.0.2.7:5".parse().unwrap(),
            local: "127.0.0.1:80".parse().unwrap(),
            tls: true,
            relayed: None,
        };
        prepare(&mut request, conn);
        request
    }

    #[test]
    fn a_certificate_is_not_left_out_by_the_client() {
        let lines = [("connection", "client-cert, x-own"), ("client-cert", ":AA==:"), ("x-own", "1")];
        let request = prepared(&lines, "/");
        assert_eq!(request.headers().get("client-cert").unwrap(), ":AA==:");
        assert!(!request.headers().contains_key("x-own"));
    }

    #[test]
    fn what_a_client_says_in_our_name_is_said_by_us() {
        let lines = [
            ("host", "a.example"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("accept", "*/*"),
        ];
        let request = prepared(&lines, "/p?q");
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["accept", "forwarded", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]
        );
        assert_eq!(request.headers()["forwarded"], "for=192.0.2.7;proto=https;host=\"a.example\"");
        assert_eq!(request.uri(), "/p?q");
    }

    #[test]
    fn whoever_names_no_host_asks_for_our_address() {
        for lines in [&[][..], &[("host", "")]] {
            let request = prepared(lines, "/");
            assert_eq!(request.headers()["host"], "127.0.0.1:80");
            assert_eq!(request.headers()["x-forwarded-host"], "127.0.0.1:80");
        }
    }
}

//! A request as its codec has checked it: what the router, and everybody behind it, reads.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the fields of a request. Must never: let a client
//! say in our name what certificate it has shown, or two readers take one name for another.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Uri};

use crate::http::body::BoundedBody;
use crate::http::conn_info::ConnInfo;

/// The request.
pub(crate) struct CheckedRequest {
    /// The connection that it came on.
    pub conn: ConnInfo,
    /// Method, path and query, fields, and body. The client's certificate is in the fields (RFC 9440), and a request
    /// for a WebSocket is among the extensions.
    pub message: Request<BoundedBody>,
}

impl CheckedRequest {
    /// Of `parts` that have passed the check of heads; `shown` is the certificate of the client.
    pub fn new(conn: ConnInfo, mut parts: Parts, shown: Option<HeaderValue>, body: BoundedBody) -> Self {
        tidy(&mut parts);
        // The worker that relays has done TLS, and has left of the field what it says itself.
        let relayed = || conn.relayed.and_then(|_| parts.headers.get(certificate::CLIENT_CERT).cloned());
        let shown = shown.or_else(relayed);
        set_certificate(&mut parts.headers, shown);
        Self { conn, message: Request::from_parts(parts, body) }
    }
}

/// Takes out what nobody gets: the authority of the target, `Upgrade`, and names that contain `_` (which CGI and its
/// descendants take for `-`).
fn tidy(parts: &mut Parts) {
    let has_underscore = |name: &HeaderName| name.as_str().contains('_');
    if parts.headers.keys().any(has_underscore) {
        let strange: Vec<HeaderName> =
            parts.headers.keys().filter(|name| has_underscore(name)).cloned().collect();
        strange.into_iter().for_each(|name| drop(parts.headers.remove(name)));
    }
    parts.headers.remove(header::UPGRADE);
    if parts.uri.authority().is_some()
        && let Some(target) = parts.uri.path_and_query()
    {
        parts.uri = Uri::from(target.clone());
    }
}

/// Makes the headers of RFC 9440 say what was shown, and nothing else.
///
/// SECURITY: on every request, before anybody reads it: whoever is behind us believes them.
fn set_certificate(headers: &mut HeaderMap, shown: Option<HeaderValue>) {
    headers.remove(certificate::CLIENT_CERT_CHAIN);
    headers.remove(certificate::CLIENT_CERT);
    if let Some(value) = shown {
        headers.insert(certificate::CLIENT_CERT, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_in_our_name_is_left_out() {
        let conn = ConnInfo {
            peer: "192.0.2.7:5".parse().unwrap(),
            local: "127.0.0.1:80".parse().unwrap(),
            tls: true,
            relayed: None,
        };
        let made = |conn: ConnInfo, shown: Option<&'static str>| {
            let request = Request::get("https://a.example/x?y")
                .header("client-cert", ":forged:")
                .header("client-cert-chain", ":forged:")
                .header("x_user", "root")
                .header("upgrade", "h2c")
                .header("x-user", "own");
            let (parts, ()) = request.body(()).unwrap().into_parts();
            CheckedRequest::new(conn, parts, shown.map(HeaderValue::from_static), BoundedBody::empty())
                .message
        };
        let names = |request: &Request<BoundedBody>| {
            let mut names: Vec<_> = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(&made(conn, None)), ["x-user"]);
        let request = made(conn, Some(":own:"));
        assert_eq!((request.headers()["client-cert"].as_bytes(), names(&request).len()), (&b":own:"[..], 2));
        assert_eq!(request.uri(), "/x?y");
        // The relaying worker has taken out the client's own fields.
        let request = made(ConnInfo { relayed: Some(2), ..conn }, None);
        assert_eq!(
            (request.headers()["client-cert"].as_bytes(), names(&request).len()),
            (&b":forged:"[..], 2)
        );
    }
}

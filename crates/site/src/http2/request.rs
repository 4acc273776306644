//! A request of HTTP/2 put as one of HTTP/1.1, so that one parser decides over both.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the fields of a request, as the library decoded
//! them. Must never: let two readers find two hosts or two lengths in one request.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;

use crate::head::Refusal;
use crate::http::websocket;

/// The head in HTTP/1.1, for the checks and the log. It is never sent.
pub(super) fn as_http1(parts: &Parts) -> Result<Vec<u8>, Refusal> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let named = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::Malformed("several Host"));
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    // RFC 9113 8.3.1: a server should treat a request as malformed whose Host says something else.
    let host = match (authority, named.map(HeaderValue::as_bytes)) {
        (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other) => {
            return Err(Refusal::Malformed("Host and :authority disagree"));
        }
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => return Err(Refusal::Malformed("no Host")),
    };
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut head = Vec::with_capacity(512);
    for piece in
        [parts.method.as_str().as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\nhost: ", host, b"\r\n"]
    {
        head.extend_from_slice(piece);
    }
    for (name, value) in &parts.headers {
        if name != header::HOST && name != header::COOKIE {
            push(&mut head, name, value.as_bytes());
        }
    }
    if let Some(cookie) = cookie(&parts.headers) {
        push(&mut head, &header::COOKIE, &cookie);
    }
    if websocket::asked(&parts.extensions).is_some() {
        head.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

fn push(head: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    for piece in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(piece);
    }
}

/// RFC 9113 8.2.3: the pieces of `Cookie`, put together.
fn cookie(headers: &HeaderMap) -> Option<Vec<u8>> {
    let pieces: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    (!pieces.is_empty()).then(|| pieces.join(&b"; "[..]))
}

/// Makes the request what one of HTTP/1.1 is after its head was written anew: in origin-form, with one `Host` and one
/// `Cookie`, without names that contain `_` (which CGI and its descendants take for `-`).
pub(super) fn tidy(parts: &mut Parts) {
    let authority = parts.uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(host)) = authority {
        parts.headers.insert(header::HOST, host);
    }
    if let Some(Ok(cookie)) = cookie(&parts.headers).map(|cookie| HeaderValue::from_bytes(&cookie)) {
        parts.headers.insert(header::COOKIE, cookie);
    }
    let strange: Vec<HeaderName> =
        parts.headers.keys().filter(|name| name.as_str().contains('_')).cloned().collect();
    for name in strange {
        parts.headers.remove(name);
    }
    if let Some(target) = parts.uri.path_and_query() {
        parts.uri = http::Uri::from(target.clone());
    }
}

//! A request of HTTP/2 made what one of HTTP/1.1 is, so that one check decides over both.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the fields of a request, as the library decoded
//! them. Must never: let two readers find two hosts or two lengths in one request.

use http::Uri;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;

use crate::head::{self, HeadRefusal, RequestHead};
use crate::http::websocket;

/// Gives the request one `Host`.
///
/// # Errors
/// It names two hosts, or none.
pub(super) fn settle(parts: &mut Parts) -> Result<(), HeadRefusal> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let named = hosts.next();
    if hosts.next().is_some() {
        return Err(HeadRefusal::Malformed("several Host"));
    }
    match (parts.uri.authority().map(|authority| authority.as_str()), named) {
        // RFC 9113 8.3.1: a server should treat a request as malformed whose Host says something else.
        (Some(one), Some(other)) if !one.as_bytes().eq_ignore_ascii_case(other.as_bytes()) => {
            return Err(HeadRefusal::Malformed("Host and :authority disagree"));
        }
        (Some(host), _) => {
            let host = HeaderValue::from_str(host).map_err(|_| HeadRefusal::Malformed("not a Host"))?;
            parts.headers.insert(header::HOST, host);
        }
        (None, Some(_)) => {}
        (None, None) => return Err(HeadRefusal::Malformed("no Host")),
    }
    Ok(())
}

/// The header fields of a request that is settled.
pub(super) fn fields(parts: &Parts) -> impl Iterator<Item = (&[u8], &[u8])> {
    parts.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// The path and query, as sent.
fn path_and_query(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", PathAndQuery::as_str)
}

/// Checks a request that is settled.
pub(super) fn check(parts: &Parts) -> Result<RequestHead<'_>, HeadRefusal> {
    let mut head = head::check_fields(parts.method.as_str(), path_and_query(&parts.uri), fields(parts))?;
    head.unusual |= websocket::asked(&parts.extensions).is_some();
    Ok(head)
}

/// The header fields of a request as it came, with the host among them.
pub(super) fn raw_fields(head: &::http2::Http2Head) -> impl Iterator<Item = (&[u8], &[u8])> {
    head.authority().map(|host| (&b"host"[..], host)).into_iter().chain(head.fields())
}

/// Checks a request as it came; whatever is unusual about it is for [`settle`] and [`check`].
pub(super) fn check_raw(head: &::http2::Http2Head) -> Option<RequestHead<'_>> {
    // The text behind a fragment's mark would not be part of the path there.
    if head.target().contains('#') {
        return None;
    }
    head::check_fields(head.method(), head.target(), raw_fields(head)).ok()
}

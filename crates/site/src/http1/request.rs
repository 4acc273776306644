//! A request of HTTP/1: made once of its checked head, and owned from then on.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the head, which has been checked. Must never: read
//! a head in another way than the check did.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri, Version};

use crate::head::{Framing, HeadRefusal, RequestField, RequestHead};
use crate::http::access_record::LoggedRequest;
use crate::http::websocket;
use crate::http1::response::RequestTraits;

/// The request; its body has still to come.
pub(crate) struct ReceivedHead {
    pub parts: Parts,
    /// The request as the log names it.
    pub logged: LoggedRequest,
    pub framing: Framing,
    pub traits: RequestTraits,
    /// Whether the client waits for `100 Continue`.
    pub expects: bool,
    /// The status that a handshake of WebSocket gets that is none.
    pub refused: Option<StatusCode>,
}

impl ReceivedHead {
    /// Of a head with these lines, which were found in `raw`.
    ///
    /// # Errors
    /// Its parts are none for the `http` crate.
    pub fn new(
        raw: &[u8],
        head: &RequestHead<'_>,
        lines: &[RequestField<'_>],
    ) -> Result<Box<Self>, HeadRefusal> {
        let raw = HeadCopy { of: raw, bytes: Bytes::copy_from_slice(raw) };
        let mut request = Request::new(());
        *request.method_mut() =
            Method::from_bytes(head.method.as_bytes()).map_err(|_| malformed("a method"))?;
        *request.uri_mut() = target(&raw, head)?;
        *request.version_mut() = if head.minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
        *request.headers_mut() = headers(&raw, head, lines)?;
        let (mut parts, ()) = request.into_parts();
        let refused = match websocket::names_websocket(head) {
            true => websocket::take_up(&mut parts).err(),
            false => None,
        };
        let is_chunked = head.framing == Framing::Chunked;
        Ok(Box::new(Self {
            parts,
            logged: LoggedRequest::new(head, head.minor),
            framing: head.framing,
            traits: RequestTraits {
                is_head: head.method == "HEAD",
                minor: head.minor,
                // SECURITY: whoever reads the end of a chunked body differently finds no request behind it.
                keep: head.keep && !is_chunked,
            },
            expects: head.expects && head.framing != Framing::None,
            refused,
        }))
    }
}

fn malformed(what: &'static str) -> HeadRefusal {
    HeadRefusal::Malformed(what)
}

/// The bytes of a head, and a copy that outlives them.
struct HeadCopy<'a> {
    of: &'a [u8],
    bytes: Bytes,
}

impl HeadCopy<'_> {
    /// The copy of `part`, without another allocation where `part` lies within the head.
    fn slice(&self, part: &[u8]) -> Bytes {
        let start = part.as_ptr().addr().checked_sub(self.of.as_ptr().addr());
        let range = start.and_then(|start| Some(start..start.checked_add(part.len())?));
        match range {
            Some(range) if range.end <= self.of.len() => self.bytes.slice(range),
            _ => Bytes::copy_from_slice(part),
        }
    }
}

/// Path and query: the authority of an absolute target is that of `Host`, or becomes it.
fn target(raw: &HeadCopy<'_>, head: &RequestHead<'_>) -> Result<Uri, HeadRefusal> {
    let none = |_| malformed("a target that is not a URI");
    if head.target.starts_with('/') || head.target == "*" {
        return Uri::from_maybe_shared(raw.slice(head.target.as_bytes())).map_err(none);
    }
    // SECURITY: an authority that is none for the `http` crate could be another one for somebody else.
    Uri::try_from(head.target).map_err(none)?;
    let path = match head.query {
        Some(query) => PathAndQuery::try_from(format!("{}?{query}", head.path)),
        None => PathAndQuery::try_from(head.path),
    };
    path.map(Uri::from).map_err(none)
}

/// Room for what a request gets on its way to a backend, and for `Host`, which HTTP/1.0 need not have.
const ADDED_LINES: usize = 6;

fn headers(
    raw: &HeadCopy<'_>,
    head: &RequestHead<'_>,
    lines: &[RequestField<'_>],
) -> Result<HeaderMap, HeadRefusal> {
    let mut headers = HeaderMap::with_capacity(lines.len() + ADDED_LINES);
    let mut push = |name: &[u8], value: &[u8]| {
        let name = HeaderName::from_bytes(name).map_err(|_| malformed("a header line without a name"))?;
        let value = HeaderValue::from_maybe_shared(raw.slice(value));
        headers.append(name, value.map_err(|_| malformed("a header line that is none"))?);
        Ok(())
    };
    for line in lines {
        push(line.name.as_bytes(), line.value)?;
    }
    if !head.host.is_empty() && !lines.iter().any(|line| line.name.eq_ignore_ascii_case("host")) {
        push(b"host", head.host)?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{CheckedHead, Room, check_lines};

    fn received(raw: &str) -> Result<Box<ReceivedHead>, HeadRefusal> {
        let mut room = Room::default();
        match check_lines(raw.as_bytes(), usize::MAX, &mut room) {
            (CheckedHead::Whole(head), lines) => ReceivedHead::new(raw.as_bytes(), &head, lines),
            other => panic!("{raw:?}: {other:?}"),
        }
    }

    #[test]
    fn a_request_says_what_its_head_said() {
        let raw = "POST /a%20b?c HTTP/1.1\r\nHost: A.example:80\r\nX-One: 1\r\nx-one:  2 \r\nContent-Length: 5\r\n\r\n";
        let made = received(raw).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        assert_eq!((made.parts.method, made.parts.uri.to_string()), (Method::POST, "/a%20b?c".into()));
        assert_eq!(made.parts.headers["host"], "A.example:80");
        let all: Vec<_> = made.parts.headers.get_all("x-one").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!((all, made.parts.headers.len()), (vec![&b"1"[..], b"2"], 4));
        assert_eq!((made.framing, made.expects), (Framing::Length(5), false));
        assert_eq!(made.traits, RequestTraits { is_head: false, minor: 1, keep: true });
    }

    #[test]
    fn every_request_has_a_path_and_the_host_that_it_named() {
        let made = |raw: &str| {
            let made = received(raw).unwrap_or_else(|refusal| panic!("{raw:?}: {refusal:?}"));
            let host = made.parts.headers.get("host").map(|host| host.to_str().unwrap().to_owned());
            (made.parts.uri.to_string(), host)
        };
        let a = || Some("a".to_owned());
        assert_eq!(made("GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n"), ("/x?y".into(), a()));
        assert_eq!(made("GET http://a?y HTTP/1.0\r\n\r\n"), ("/?y".into(), a()));
        assert_eq!(made("GET http://a HTTP/1.0\r\n\r\n"), ("/".into(), a()));
        assert_eq!(made("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), ("*".into(), a()));
        assert_eq!(made("GET / HTTP/1.0\r\n\r\n"), ("/".into(), None));
    }

    #[test]
    fn a_connection_ends_with_a_chunked_body() {
        let made = received("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(made.is_ok_and(|made| !made.traits.keep && made.framing == Framing::Chunked));
    }
}

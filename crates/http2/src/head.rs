//! The fields of a request, one behind the other.
//!
//! Untrusted input: fields, as they were decoded. Must never: hold more than the limit for a list of fields.
//!
//! Source: RFC 9113 8.2, 8.3; RFC 8441 4.

use std::ops::Range;

use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

use crate::hpack::FIELD_BYTES;

/// The protocol that an extended CONNECT asks for, among the extensions of a request.
#[derive(Clone, Debug)]
pub struct Protocol(pub String);

/// Where a field stands.
#[derive(Clone, Copy, Debug)]
struct Field {
    start: usize,
    /// Where the name ends and the value begins.
    middle: usize,
    end: usize,
}

/// A request, or the trailers of one.
#[derive(Debug, Default)]
pub struct Http2Head {
    text: Vec<u8>,
    fields: Vec<Field>,
    /// `:method`, `:scheme`, `:authority`, `:path`, `:protocol`.
    pseudo: [Option<(usize, usize)>; 5],
    /// Bytes of the list, as RFC 9113 6.5.2 counts them.
    bytes: usize,
    most: usize,
    malformed: bool,
    /// Whether the target leaves no room for anything else.
    is_filled: bool,
    cookies: usize,
    /// The announced length of the body.
    pub(crate) length: Option<u64>,
    pub(crate) stream: u32,
    ends: bool,
    /// For text on its way.
    pub(crate) room: Vec<u8>,
}

const PSEUDO: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;

impl Http2Head {
    /// Empties it for a list of at most so many bytes.
    pub(crate) fn begin(&mut self, stream: u32, ends: bool, most: usize) {
        let (mut text, mut fields, room) = (
            std::mem::take(&mut self.text),
            std::mem::take(&mut self.fields),
            std::mem::take(&mut self.room),
        );
        text.clear();
        fields.clear();
        *self = Self { text, fields, room, stream, ends, most, ..Self::default() };
    }

    /// Takes a field up.
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        let bytes = name.len() + value.len() + FIELD_BYTES;
        self.bytes += bytes;
        self.is_filled |= bytes > self.most && name == PSEUDO[PATH];
        if self.is_too_large() || self.malformed {
            return;
        }
        let is_good = match name.first() {
            Some(b':') => self.push_pseudo(name, value),
            _ => self.push_field(name, value),
        };
        self.malformed = !is_good;
    }

    fn push_pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        let Some(which) = PSEUDO.iter().position(|one| *one == name) else { return false };
        // RFC 9113 8.3: before all others, and each once.
        if !self.fields.is_empty() || self.pseudo[which].is_some() || !is_value(value) {
            return false;
        }
        let start = self.text.len();
        self.text.extend_from_slice(value);
        self.pseudo[which] = Some((start, self.text.len()));
        true
    }

    fn push_field(&mut self, name: &[u8], value: &[u8]) -> bool {
        if name.is_empty() || !name.iter().all(is_of_name) || !is_value(value) {
            return false;
        }
        match name {
            b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive" | b"proxy-connection" => {
                return false;
            }
            b"te" if value != b"trailers" => return false,
            b"content-length" => {
                let length = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit));
                let Some(length) = length.and_then(|length| length.parse().ok()) else { return false };
                if self.length.replace(length).is_some_and(|other| other != length) {
                    return false;
                }
            }
            b"cookie" => self.cookies += 1,
            _ => {}
        }
        let start = self.text.len();
        self.text.extend_from_slice(name);
        let middle = self.text.len();
        self.text.extend_from_slice(value);
        self.fields.push(Field { start, middle, end: self.text.len() });
        true
    }

    /// Whether the list is longer than it may be.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > self.most
    }

    /// The status of the answer to a list that is too long: for its target (RFC 9110 15.5.15), or for all of it (RFC
    /// 6585 5).
    pub(crate) fn refusal(&self) -> u16 {
        if self.is_filled { 414 } else { 431 }
    }

    /// Whether these are the trailers of a request.
    pub(crate) fn is_trailers(&self) -> bool {
        !self.malformed && self.pseudo.iter().all(Option::is_none)
    }

    /// Whether these are the fields of a request; puts its cookies together.
    pub(crate) fn finish(&mut self) -> bool {
        if self.cookies > 1 {
            self.join_cookies();
        }
        let has = |which: usize| self.pseudo[which].is_some();
        let target = has(SCHEME) && self.value(PATH).is_some_and(|path| !path.is_empty());
        let is_whole = match self.value(METHOD) {
            None => false,
            // RFC 8441 4: one with a protocol has what others have.
            Some(b"CONNECT") if !has(PROTOCOL) => has(AUTHORITY) && !has(SCHEME) && !has(PATH),
            Some(b"CONNECT") => target && has(AUTHORITY),
            Some(_) => target && !has(PROTOCOL),
        };
        !self.malformed && is_whole && !(self.ends && self.length.is_some_and(|length| length > 0))
    }

    /// RFC 9113 8.2.3.
    fn join_cookies(&mut self) {
        let start = self.text.len();
        self.text.extend_from_slice(b"cookie");
        let middle = self.text.len();
        for at in 0..self.fields.len() {
            let Field { start, middle: value, end } = self.fields[at];
            if &self.text[start..value] == b"cookie" {
                if self.text.len() > middle {
                    self.text.extend_from_slice(b"; ");
                }
                self.text.extend_from_within(value..end);
            }
        }
        let text = &self.text;
        self.fields.retain(|field| &text[field.start..field.middle] != b"cookie");
        self.fields.push(Field { start, middle, end: self.text.len() });
    }

    fn value(&self, which: usize) -> Option<&[u8]> {
        self.pseudo[which].map(|(start, end)| &self.text[start..end])
    }

    fn text(&self, which: usize) -> Option<&str> {
        std::str::from_utf8(self.value(which)?).ok()
    }

    /// The method.
    pub fn method(&self) -> &str {
        self.text(METHOD).unwrap_or_default()
    }

    /// The path and query, as sent.
    pub fn target(&self) -> &str {
        self.text(PATH).unwrap_or_default()
    }

    /// The host, if it is named there where HTTP/2 has it.
    pub fn authority(&self) -> Option<&[u8]> {
        self.value(AUTHORITY)
    }

    /// Whether no body comes.
    pub fn is_whole(&self) -> bool {
        self.ends
    }

    /// The fields.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let piece = |range: Range<usize>| &self.text[range];
        self.fields
            .iter()
            .map(move |&Field { start, middle, end }| (piece(start..middle), piece(middle..end)))
    }

    /// The request as the others know it; `None` if there is no such request.
    pub fn parts(&self) -> Option<Parts> {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.version = Version::HTTP_2;
        parts.method = Method::from_bytes(self.value(METHOD)?).ok()?;
        let mut uri = http::uri::Parts::default();
        if let Some(path) = self.value(PATH) {
            uri.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
        }
        if let Some(authority) = self.value(AUTHORITY) {
            uri.authority = Some(Authority::try_from(authority).ok()?);
            uri.scheme = self.value(SCHEME).map(Scheme::try_from).transpose().ok()?;
        }
        parts.uri = Uri::from_parts(uri).ok()?;
        if let Some(protocol) = self.text(PROTOCOL) {
            parts.extensions.insert(Protocol(protocol.to_owned()));
        }
        parts.headers.reserve(self.fields.len() + 1);
        for (name, value) in self.fields() {
            parts.headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
        Some(parts)
    }
}

/// RFC 9110 5.6.2, without capital letters (RFC 9113 8.2.1).
fn is_of_name(byte: &u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'.' | b'^' | b'`' | b'|' | b'~')
}

/// RFC 9110 5.5, without blanks around the value (RFC 9113 8.2.1), which readers of HTTP/1.1 leave out and others do
/// not.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first())
        && !is_blank(value.last())
        && value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/x?y")];

    fn head(fields: &[(&str, &str)], most: usize) -> Http2Head {
        let mut head = Http2Head::default();
        head.begin(1, true, most);
        fields.iter().for_each(|(name, value)| head.push(name.as_bytes(), value.as_bytes()));
        head
    }

    fn is_request(fields: &[(&str, &str)]) -> bool {
        head(fields, 1 << 14).finish()
    }

    #[test]
    fn a_request_has_what_the_rfc_asks_for() {
        assert!(is_request(&GET));
        for missing in [0, 1, 3] {
            let mut fields = GET.to_vec();
            fields.remove(missing);
            assert!(!is_request(&fields), "{fields:?}");
        }
        let with = |more: &[(&'static str, &'static str)]| is_request(&[&GET[..], more].concat());
        assert!(with(&[
            ("te", "trailers"),
            ("x-y_z", "\u{e4}\t \u{e4}"),
            ("x", ""),
            ("content-length", "0")
        ]));
        for bad in [
            ("X", "y"),
            ("", "y"),
            ("x y", "z"),
            ("x", "\n"),
            ("x", "\0"),
            ("x", "\x7f"),
            ("x", " y"),
            ("x", "y "),
            ("x", "\ty"),
            ("x", "y\t"),
            ("x", " "),
            ("content-length", " 0"),
            ("te", "trailers "),
            (":path", "/"),
            (":status", "200"),
            (":protocol", "websocket"),
            ("te", "gzip"),
            ("connection", "close"),
            ("upgrade", "h2c"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "x"),
            ("proxy-connection", "x"),
            ("content-length", "+1"),
            ("content-length", "1"),
            ("content-length", ""),
        ] {
            assert!(!with(&[bad]), "{bad:?}");
        }
        assert!(
            !with(&[("x", "y"), (":path", "/")])
                && !is_request(&[("x", "y"), GET[0], GET[1], GET[2], GET[3]])
        );
        assert!(!is_request(&[GET[0], GET[1], GET[2], (":path", "")]));
        let connect = (":method", "CONNECT");
        assert!(is_request(&[connect, GET[2]]) && !is_request(&[connect, GET[2], GET[3]]));
        assert!(is_request(&[connect, GET[1], GET[2], GET[3], (":protocol", "websocket")]));
        assert!(!is_request(&[connect, GET[2], (":protocol", "websocket")]));
    }

    #[test]
    fn two_lengths_are_no_length() {
        let mut two = Http2Head::default();
        two.begin(1, false, 4096);
        let fields = GET.into_iter().chain([("content-length", "1"), ("content-length", "2")]);
        fields.for_each(|(name, value)| two.push(name.as_bytes(), value.as_bytes()));
        assert!(!two.finish());
    }

    #[test]
    fn a_list_is_bounded_and_room_is_used_again() {
        let mut large = head(&GET, 4096);
        (0..1000).for_each(|_| large.push(b"x", &[b'y'; 100]));
        assert!(large.is_too_large() && large.text.len() < 4096);
        large.begin(3, true, 4096);
        assert!(!large.is_too_large() && large.fields().next().is_none() && !large.finish());
    }

    #[test]
    fn cookies_become_one() {
        let cookies = [("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2"), ("cookie", "c=3")];
        let mut head = head(&[&GET[..], &cookies].concat(), 4096);
        assert!(head.finish());
        let fields: Vec<_> = head.fields().collect();
        assert_eq!(fields, [(&b"accept"[..], &b"*/*"[..]), (b"cookie", b"a=1; b=2; c=3")]);
        let parts = head.parts().unwrap();
        assert_eq!((parts.uri.to_string(), parts.headers.len()), ("https://a.example/x?y".to_owned(), 2));
    }

    #[test]
    fn what_is_no_uri_is_no_request() {
        for (which, bad) in [(0, "G T"), (2, "a b"), (3, "/\u{7f}"), (3, "x y"), (3, " /"), (0, "GET ")] {
            let mut fields = GET;
            fields[which].1 = bad;
            assert!(head(&fields, 4096).parts().is_none(), "{bad}");
        }
    }
}

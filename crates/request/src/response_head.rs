//! The head of a response, as a server behind the site sends it (RFC 9112 4, 5).
//!
//! Runs in: site workers, unprivileged; pure, no input or output. Untrusted input: every byte of the head. Must never:
//! let a byte of a value end a line of ours, or accept a folded line.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version};

use crate::fields;

/// LIMIT: header lines of a response.
pub const LINES_MAX: usize = 100;

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status; one below 200 as well.
    pub status: StatusCode,
    /// HTTP/1.0 or HTTP/1.1, for which a later one counts.
    pub version: Version,
    /// The words behind the status, where they are not the usual ones.
    pub reason: Option<Bytes>,
    /// The fields.
    pub headers: HeaderMap,
    /// Bytes of the head, its empty line included.
    pub length: usize,
}

/// Why a head is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a response with {0}")]
pub struct ResponseHeadError(pub &'static str);

/// The head where it was found.
#[derive(Debug)]
pub struct RawHead<'r, 'a> {
    /// As [`ResponseHead::status`].
    pub status: StatusCode,
    /// As [`ResponseHead::version`].
    pub version: Version,
    /// As [`ResponseHead::reason`].
    pub reason: Option<&'a str>,
    /// The header lines.
    pub lines: &'r [ResponseField<'a>],
    /// As [`ResponseHead::length`].
    pub length: usize,
}

/// One header line, its value without the blanks around it.
pub type ResponseField<'a> = httparse::Header<'a>;

/// Room for the header lines of one head.
pub struct Room<'a> {
    usual: [MaybeUninit<ResponseField<'a>>; LINES_MAX],
    /// For those of a later version, of which there are hardly any.
    later: Vec<ResponseField<'a>>,
}

impl Default for Room<'_> {
    fn default() -> Self {
        Self { usual: [const { MaybeUninit::uninit() }; LINES_MAX], later: Vec::new() }
    }
}

/// Finds the head that `data` begins with; `None` if its end has not arrived.
///
/// # Errors
/// The bytes are not those of a response.
pub fn find<'r, 'a>(
    data: &'a [u8],
    room: &'r mut Room<'a>,
) -> Result<Option<RawHead<'r, 'a>>, ResponseHeadError> {
    let Room { usual, later } = room;
    if matches!(data, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', ..]) {
        return find_later(data, later);
    }
    let mut head = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut head, data, usual);
    let Some(length) = whole(parsed)? else {
        return Ok(None);
    };
    let version = if head.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let (status, reason) = (status(head.code)?, head.reason);
    Ok(Some(RawHead { status, version, reason: unusual(status, reason), lines: head.headers, length }))
}

/// RFC 9110 2.5: a response of a later minor version is one of the latest that is known here.
fn find_later<'r, 'a>(
    data: &'a [u8],
    room: &'r mut Vec<ResponseField<'a>>,
) -> Result<Option<RawHead<'r, 'a>>, ResponseHeadError> {
    let Some(line_bytes) = memchr::memchr(b'\n', data).map(|at| at + 1) else {
        return Ok(None);
    };
    // The same parser judges the rest of the line as in other responses.
    let usual = [b"HTTP/1.1", &data["HTTP/1.1".len()..line_bytes], b"\r\n"].concat();
    let mut first = httparse::Response::new(&mut []);
    whole(first.parse(&usual))?;
    let status = status(first.code)?;
    // Of as many bytes, so that it stands at the end of both lines.
    let line = data[..line_bytes].trim_ascii_end();
    let reason = first.reason.and_then(|reason| line.get(line.len().checked_sub(reason.trim_end().len())?..));
    let reason = reason.and_then(|reason| std::str::from_utf8(reason).ok());
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let parsed = httparse::parse_headers(&data[line_bytes..], &mut lines);
    let Some((length, lines)) = whole(parsed)? else {
        return Ok(None);
    };
    *room = lines.to_vec();
    let (reason, length) = (unusual(status, reason), line_bytes + length);
    Ok(Some(RawHead { status, version: Version::HTTP_11, reason, lines: room, length }))
}

/// The parser's result, if all of the head is there.
fn whole<T>(parsed: httparse::Result<T>) -> Result<Option<T>, ResponseHeadError> {
    match parsed {
        Ok(httparse::Status::Complete(found)) => Ok(Some(found)),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(ResponseHeadError("too many header lines")),
        Err(_) => Err(ResponseHeadError("a head that is none")),
    }
}

fn status(code: Option<u16>) -> Result<StatusCode, ResponseHeadError> {
    StatusCode::from_u16(code.unwrap_or_default()).map_err(|_| ResponseHeadError("a bad status"))
}

fn unusual(status: StatusCode, reason: Option<&str>) -> Option<&str> {
    reason.filter(|reason| !reason.is_empty() && Some(*reason) != status.canonical_reason())
}

/// Reads the head that `data` begins with; `None` if its end has not arrived.
///
/// # Errors
/// As [`find`].
pub fn parse(data: &[u8]) -> Result<Option<ResponseHead>, ResponseHeadError> {
    let mut room = Room::default();
    let Some(RawHead { status, version, reason, lines, length }) = find(data, &mut room)? else {
        return Ok(None);
    };
    // All values share one copy of the head.
    let text = Bytes::copy_from_slice(&data[..length]);
    let part = |part: &[u8]| {
        let start = part.as_ptr() as usize - data.as_ptr() as usize;
        text.slice(start..start + part.len())
    };
    let mut headers = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes())
            .map_err(|_| ResponseHeadError("a bad header name"))?;
        // An empty value need not stand within the head.
        let value = if line.value.is_empty() { Bytes::new() } else { part(line.value) };
        let value =
            HeaderValue::from_maybe_shared(value).map_err(|_| ResponseHeadError("a bad header value"))?;
        headers.append(name, value);
    }
    let reason = reason.map(|reason| part(reason.as_bytes()));
    Ok(Some(ResponseHead { status, version, reason, headers, length }))
}

/// The fields of a trailer, its empty line included; `None` if there are none.
///
/// # Errors
/// They are no fields.
pub fn trailers(text: &[u8]) -> Result<Option<HeaderMap>, ResponseHeadError> {
    const BAD: ResponseHeadError = ResponseHeadError("a bad trailer");
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(text, &mut lines) else {
        return Err(BAD);
    };
    let mut headers = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| BAD)?;
        headers.append(name, HeaderValue::from_bytes(line.value).map_err(|_| BAD)?);
    }
    Ok(Some(headers).filter(|headers| !headers.is_empty()))
}

impl ResponseHead {
    /// RFC 9112 9.3: whether another response may follow this one on its connection.
    pub fn keeps(&self) -> bool {
        let says = |option: &str| fields::has_option(&self.headers, option.as_bytes());
        if self.version == Version::HTTP_10 { says("keep-alive") && !says("close") } else { !says("close") }
    }
}

/// The entry for fuzzing.
pub fn fuzz(data: &[u8]) {
    // Trailers that the framing of a chunked body lets pass are read, or refused.
    let _ = trailers(data);
    let Ok(Some(head)) = parse(data) else { return };
    // INVARIANT: the head is the same, whatever follows, and no part of it is one.
    let alone = parse(&data[..head.length]).ok().flatten();
    assert!(alone.is_some_and(|alone| alone.length == head.length && alone.headers == head.headers));
    assert!(matches!(parse(&data[..head.length - 1]), Ok(None)));
    assert!(head.headers.len() <= LINES_MAX);
    for value in head.headers.values() {
        assert!(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
    assert!(!head.reason.is_some_and(|reason| reason.contains(&b'\n')));
    // Lines that were folded would be fewer than there are.
    let lines = data[..head.length].split(|&byte| byte == b'\n');
    let fields = lines.filter(|line| line.contains(&b':') && !line.starts_with(b"HTTP/")).count();
    assert_eq!(head.headers.len(), fields);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<ResponseHead>, ResponseHeadError> {
        fuzz(text.as_bytes());
        parse(text.as_bytes())
    }

    #[test]
    fn a_later_version_is_the_latest_that_is_known() {
        let whole = |text: &str| head(text).unwrap().unwrap();
        for line in ["204 No Content", "200 ", "200", "299 Words  of its own"] {
            let text = |minor| format!("HTTP/1.{minor} {line}\r\nA: b\r\nE:\r\n\r\n");
            let (known, later) = (whole(&text(1)), whole(&text(9)));
            assert_eq!(
                (known.status, known.version, &known.reason),
                (later.status, later.version, &later.reason)
            );
            assert_eq!((known.length, &known.headers), (later.length, &later.headers));
        }
        let many = "A: b\r\n".repeat(LINES_MAX);
        assert!(head(&format!("HTTP/1.2 200 OK\r\n{many}\r\n")).unwrap().is_some());
        assert!(head(&format!("HTTP/1.2 200 OK\r\n{many}A: b\r\n\r\n")).is_err());
    }

    #[test]
    fn heads_are_read_once_they_are_whole() {
        const TEXT: &str =
            "HTTP/1.1 404 Nothing here\r\nA: b\r\nSet-Cookie: 1\r\nset-cookie: 2\r\nE:\r\n\r\n";
        for cut in 0..TEXT.len() {
            assert!(matches!(head(&TEXT[..cut]), Ok(None)), "{cut}");
        }
        let found = head(&format!("{TEXT}body\r\n\r\n")).unwrap().unwrap();
        assert_eq!((found.status.as_u16(), found.version, found.length), (404, Version::HTTP_11, TEXT.len()));
        assert_eq!(found.reason.as_deref(), Some(&b"Nothing here"[..]));
        let values =
            |name: &str| found.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
        assert_eq!(values("set-cookie"), [b"1", b"2"]);
        assert_eq!(values("e"), [b""]);
        assert_eq!(head("HTTP/1.0 200 OK\r\n\r\n").unwrap().unwrap().reason, None);
    }

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        for lines in
            ["A: b\r\n c: d", "A : b", ": b", "no colon", "A: b\0c", "A: b\rC: d", " A: b", "A\tb: c"]
        {
            assert!(head(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n")).is_err(), "{lines:?}");
        }
        for first in [
            "HTTP/2.0 200 OK",
            "HTTP/1.12 200 OK",
            "HTTP/1.2 20 OK",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 2000 OK",
            "GET / HTTP/1.1",
            "ICY 200",
        ] {
            assert!(head(&format!("{first}\r\n\r\n")).is_err(), "{first:?}");
        }
        assert!(head("HTTP/1.1 099 Low\r\n\r\n").is_err());
        let many = "A: b\r\n".repeat(LINES_MAX);
        assert!(head(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).unwrap().is_some());
        assert!(head(&format!("HTTP/1.1 200 OK\r\n{many}A: b\r\n\r\n")).is_err());
    }

    #[test]
    fn trailers_are_fields() {
        assert_eq!(trailers(b"\r\n"), Ok(None));
        let found = trailers(b"A: b\r\na: c\r\n\r\n").unwrap().unwrap();
        assert_eq!((found.len(), found["a"].as_bytes()), (2, &b"b"[..]));
        for bad in ["A: b\r\n c\r\n\r\n", "A : b\r\n\r\n", "A: b\r\n", "A\r\n\r\n"] {
            assert!(trailers(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn connections_are_kept_unless_that_is_called_off() {
        let keeps = |version: &str, value: &str| {
            head(&format!("HTTP/{version} 200 OK\r\nConnection: {value}\r\n\r\n")).unwrap().unwrap().keeps()
        };
        assert!(keeps("1.1", "") && keeps("1.1", "keep-alive") && keeps("1.0", "x, Keep-Alive"));
        assert!(
            !keeps("1.1", "Close")
                && !keeps("1.1", "keep-alive , close")
                && !keeps("1.0", "")
                && !keeps("1.0", "close")
        );
    }
}

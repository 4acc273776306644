//! The head of a CGI answer: header lines without a status line.
//!
//! Untrusted input: every byte of it. Must never: let a byte of a value end a line of ours, or accept a head that says
//! two things about the length of its body.
//!
//! Source: RFC 3875 6.

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use request::chunks::is_token;
use request::fields;
use request::head::RequestField;

/// The head of an answer.
#[derive(Debug)]
pub struct CgiReply {
    /// The status.
    pub status: StatusCode,
    /// Everything but `Status`.
    pub headers: HeaderMap,
}

/// Why a head is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("answer with {0}")]
pub struct BadReply(pub &'static str);

/// How many bytes the head has that `data` begins with, its empty line included; `None` if that has not arrived, as it
/// had not in the first `searched` bytes.
pub fn length(data: &[u8], searched: usize) -> Option<usize> {
    let mut ends = memchr::memchr_iter(b'\n', &data[searched..]).map(|at| searched + at);
    let end = ends.find(|&end| {
        let line = data[..end].strip_suffix(b"\r").unwrap_or(&data[..end]);
        line.is_empty() || line.ends_with(b"\n")
    })?;
    Some(end + 1)
}

/// Reads a whole head, of at most `lines_max` lines.
///
/// # Errors
/// The head is none, or two readers could understand it differently.
pub fn parse(head: &[u8], lines_max: usize) -> Result<CgiReply, BadReply> {
    let mut headers = HeaderMap::new();
    let status = read(head, lines_max, |line| {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| BAD_NAME)?;
        headers.append(name, HeaderValue::from_bytes(line.value).map_err(|_| BAD_VALUE)?);
        Ok(())
    })?;
    Ok(CgiReply { status, headers })
}

/// The same; gives `take` all lines but that of `Status`, in their order. The lines that it was given count for nothing
/// if the head is none.
///
/// # Errors
/// Those of [`parse`], and of `take`.
pub fn read<'a>(
    head: &'a [u8],
    lines_max: usize,
    mut take: impl FnMut(RequestField<'a>) -> Result<(), BadReply>,
) -> Result<StatusCode, BadReply> {
    let (mut status, mut is_sent_elsewhere, mut has_length) = (None, false, false);
    let lines = head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    for (number, line) in lines.take_while(|line| !line.is_empty()).enumerate() {
        if number == lines_max {
            return Err(BadReply("too many header lines"));
        }
        let line = field(line)?;
        let is = |name: &str| line.name.eq_ignore_ascii_case(name);
        if is("status") {
            if status.replace(status_of(line.value)?).is_some() {
                return Err(BadReply("several Status"));
            }
            continue;
        }
        is_sent_elsewhere |= is("location");
        if is("content-length")
            && (std::mem::replace(&mut has_length, true) || fields::length(line.value).is_none())
        {
            return Err(BadReply("a bad Content-Length"));
        }
        take(line)?;
    }
    let default = if is_sent_elsewhere { StatusCode::FOUND } else { StatusCode::OK };
    Ok(status.unwrap_or(default))
}

const BAD_NAME: BadReply = BadReply("a bad header name");
const BAD_VALUE: BadReply = BadReply("a bad header value");

fn field(line: &[u8]) -> Result<RequestField<'_>, BadReply> {
    let colon = memchr::memchr(b':', line).ok_or(BadReply("a line without colon"))?;
    // A name with white space before its colon, or a line that begins with it, is no name.
    let name = std::str::from_utf8(&line[..colon]).ok().filter(|name| is_name(name)).ok_or(BAD_NAME)?;
    let value = line[colon + 1..].trim_ascii();
    let is_value = |&byte: &u8| byte == b'\t' || (byte >= b' ' && byte != 127);
    if value.iter().all(is_value) { Ok(RequestField { name, value }) } else { Err(BAD_VALUE) }
}

/// A token (RFC 9110 5.6.2), no longer than the `http` crate takes.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_token)
}

/// LIMIT: bytes of a name.
const NAME_BYTES_MAX: usize = (1 << 16) - 1;

/// `200 OK`: three digits, and then what people read.
fn status_of(value: &[u8]) -> Result<StatusCode, BadReply> {
    const BAD: BadReply = BadReply("a bad Status");
    let (digits, rest) = value.split_at_checked(3).ok_or(BAD)?;
    if !matches!(rest.first(), None | Some(b' ')) {
        return Err(BAD);
    }
    let status = StatusCode::from_bytes(digits).map_err(|_| BAD)?;
    // An interim response is not an answer, and above 599 there is no status.
    if status.is_informational() || status.as_u16() > 599 { Err(BAD) } else { Ok(status) }
}

/// The entry for fuzzing.
pub fn fuzz(data: &[u8]) {
    let Some(length) = length(data, 0) else { return };
    // INVARIANT: the head ends at the same place, whatever follows, and however much of it had come before.
    assert_eq!(self::length(&data[..length], data.len() % length), Some(length));
    if let Ok(reply) = parse(&data[..length], 100) {
        assert!(!reply.status.is_informational());
        assert!(reply.headers.get_all(http::header::CONTENT_LENGTH).iter().count() <= 1);
        for value in reply.headers.values() {
            assert!(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_at_the_first_empty_line() {
        let heads: [(&[u8], _); 6] = [
            (b"A: b\r\n\r\nbody\r\n\r\n", Some(8)),
            (b"A: b\n\nbody", Some(6)),
            (b"A: b\r\n\nbody", Some(7)),
            (b"\nbody", Some(1)),
            (b"A: b\r\n", None),
            (b"A: b\r\n\r", None),
        ];
        for (head, end) in heads {
            for searched in 0..end.unwrap_or(head.len()) {
                assert_eq!(length(head, searched), end, "{searched}");
            }
        }
    }

    #[test]
    fn statuses() {
        let status =
            |text: &str| parse(text.as_bytes(), 100).map(|reply| reply.status.as_u16()).map_err(|bad| bad.0);
        assert_eq!(status("Content-Type: a/b\r\n\r\n"), Ok(200));
        assert_eq!(status("Status: 404 Not Found\r\n\r\n"), Ok(404));
        assert_eq!(status("status: 204\n\n"), Ok(204));
        assert_eq!(status("Location: /x\n\n"), Ok(302));
        assert_eq!(status("Location: /x\nStatus: 201 Created\n\n"), Ok(201));
        assert_eq!((status("Status: 599\n\n"), status("Status: 200\n\n")), (Ok(599), Ok(200)));
        for bad in ["20", "2000", "abc", "100 Continue", "101", "600", "999", "", "200OK", "-12"] {
            assert_eq!(status(&format!("Status: {bad}\r\n\r\n")), Err("a bad Status"), "{bad}");
        }
        assert_eq!(status("Status: 200\nStatus: 200\n\n"), Err("several Status"));
    }

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        let bad = [
            "A: b\r\n C: d\r\n\r\n",
            "A : b\r\n\r\n",
            ": b\r\n\r\n",
            "no colon\r\n\r\n",
            "A: b\rC: d\r\n\r\n",
            "A: b\0\r\n\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "Content-Length: 1, 1\r\n\r\n",
            "Content-Length: +1\r\n\r\n",
            "Content-Length: 010\r\n\r\n",
            "Content-Length: \r\n\r\n",
            "Content-Length: 1234567890123456789\r\n\r\n",
        ];
        for head in bad {
            assert!(parse(head.as_bytes(), 100).is_err(), "{head:?}");
        }
    }

    #[test]
    fn a_field_may_have_several_lines() {
        let head = "Set-Cookie: a=1\nSet-Cookie: b=2\n\n";
        let reply = parse(head.as_bytes(), 100).unwrap();
        let names: Vec<_> =
            reply.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(names, [("set-cookie", &b"a=1"[..]), ("set-cookie", b"b=2")]);
    }
}

//! The check that every request head passes before anything else sees it: one parser decides.
//!
//! Runs in: gates and site workers, unprivileged; pure, no input or output. Untrusted input: all of it. Must never:
//! panic, allocate on the way to a good answer, or accept a head that two parsers could read differently.

mod refusal;

use std::mem::MaybeUninit;

use memchr::memchr_iter;

pub use refusal::HeadRefusal;

use crate::{fields, target};

/// LIMIT: header lines in one head, the number hyper's own parser has room for.
pub const HEADER_LINES_MAX: usize = 100;

/// LIMIT: bytes of a target, in whatever room a head has; `conditioning` has the same limit, and a lower one for strict
/// checks.
pub const TARGET_BYTES_MAX: usize = 16 << 10;

/// The methods that make a difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// Any other.
    Other,
}

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// So many bytes, more than none.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// The result of [`check`].
#[derive(Debug)]
pub enum CheckedHead<'a> {
    /// The head has not arrived completely.
    Partial,
    /// The head is refused, and with it the connection.
    Refused(HeadRefusal),
    /// A whole and acceptable head.
    Whole(RequestHead<'a>),
}

/// An accepted request head; the slices point into the bytes it was read from.
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    /// Bytes of the head, the empty line included.
    pub length: usize,
    /// The method, as far as it matters.
    pub verb: Verb,
    /// The method as sent.
    pub method: &'a str,
    /// The target as sent.
    pub target: &'a str,
    /// The path as sent, not decoded; begins with `/`, or is `*` for `OPTIONS`.
    pub path: &'a str,
    /// The query as sent, without `?`.
    pub query: Option<&'a str>,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor: u8,
    /// The host without port and trailing dot, not lower-cased; empty if HTTP/1.0 named none.
    pub host: &'a [u8],
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the connection may continue after the answer.
    pub keep: bool,
    /// `Expect: 100-continue`.
    pub expects: bool,
    /// `Range`, `If-Match`, `If-Unmodified-Since`, `If-Range`, `Upgrade` or several of one condition: not for
    /// the fast path.
    pub unusual: bool,
    /// `Upgrade`, where `Connection` names it and nothing else of the request stands in its way.
    pub upgrade: Option<&'a [u8]>,
    /// `If-None-Match`.
    pub if_none_match: Option<&'a [u8]>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a [u8]>,
    /// `Accept-Encoding`; several make the head unusual.
    pub accept_encoding: Option<&'a [u8]>,
    /// `Referer`, or empty.
    pub referer: &'a [u8],
    /// `User-Agent`, or empty.
    pub user_agent: &'a [u8],
}

/// One header line of a head, its value without the blanks around it.
pub type RequestField<'a> = httparse::Header<'a>;

/// Room for the header lines of one head.
pub struct Room<'a> {
    usual: [MaybeUninit<RequestField<'a>>; HEADER_LINES_MAX],
    /// For those of a later version, of which there are hardly any.
    later: Vec<RequestField<'a>>,
}

impl Default for Room<'_> {
    fn default() -> Self {
        Self { usual: [const { MaybeUninit::uninit() }; HEADER_LINES_MAX], later: Vec::new() }
    }
}

/// Whether a head that had no end in the first `searched` bytes of `data` may have one now. A reader that asks before
/// it checks the head again searches each byte of a slow client once, and does not parse all bytes before it for each.
pub fn may_have_ended(data: &[u8], searched: usize) -> bool {
    let new = &data[searched.saturating_sub("\r\n\r".len()).min(data.len())..];
    // Lone line feeds end no head, but are to be refused now.
    let begins_line = |rest: &[u8]| rest.starts_with(b"\r\n") || rest.starts_with(b"\n");
    memchr::memchr_iter(b'\n', new).any(|at| begins_line(&new[at + 1..]))
}

/// Checks the head that `data` begins with, of at most `head_bytes` bytes.
pub fn check(data: &[u8], head_bytes: usize) -> CheckedHead<'_> {
    check_lines(data, head_bytes, &mut Room::default()).0
}

/// As [`check`]; also the header lines of a whole head, in the order in which they came, for whoever makes a request of
/// the head: nobody need parse the head again for that.
pub fn check_lines<'r, 'a>(
    data: &'a [u8],
    head_bytes: usize,
    room: &'r mut Room<'a>,
) -> (CheckedHead<'a>, &'r [RequestField<'a>]) {
    let mut request = httparse::Request::new(&mut []);
    let Room { usual, later } = room;
    let parsed = request.parse_with_uninit_headers(data, usual);
    if parsed == Err(httparse::Error::Version) {
        if later_version_begins(data) && data.len() < head_bytes {
            return (CheckedHead::Partial, &[]);
        }
        if let Some(line) = later_version(data) {
            return check_later(data, line, head_bytes, later);
        }
    }
    let httparse::Request { method, path, version, headers } = request;
    let checked = match parsed {
        Ok(httparse::Status::Complete(length)) if length <= head_bytes => match (method, path, version) {
            (Some(method), Some(target), Some(minor)) => {
                whole(&data[..length], method, target, minor, headers)
            }
            // INVARIANT: a whole head has these three.
            _ => Err(HeadRefusal::Malformed("not a request line")),
        },
        Ok(httparse::Status::Partial) if data.len() < head_bytes => return (CheckedHead::Partial, &[]),
        Ok(_) => Err(too_long(data, head_bytes)),
        Err(httparse::Error::TooManyHeaders) => Err(HeadRefusal::TooLarge),
        Err(httparse::Error::Version) => Err(bad_version(data)),
        Err(_) => Err(HeadRefusal::Malformed("not a request head")),
    };
    match checked {
        Ok(head) => (CheckedHead::Whole(head), headers),
        Err(refusal) => (CheckedHead::Refused(refusal), &[]),
    }
}

/// The first line of a request of a later minor version: its method, its target, and its bytes with what precedes them.
fn later_version(data: &[u8]) -> Option<(&str, &str, usize)> {
    let before = empty_lines(data);
    let line_bytes = memchr::memchr(b'\n', &data[before..])? + 1;
    let line = data[before..before + line_bytes].strip_suffix(b"\r\n")?;
    let (request, minor) = line.split_at_checked(line.len().checked_sub(1)?)?;
    let request = request.strip_suffix(b" HTTP/1.").filter(|_| matches!(minor, [b'2'..=b'9']))?;
    // The same parser judges the two words as in other requests.
    let usual = [request, b" HTTP/1.1\r\n\r\n"].concat();
    let mut parsed = httparse::Request::new(&mut []);
    parsed.parse(&usual).ok().filter(httparse::Status::is_complete)?;
    let (method, target) = std::str::from_utf8(request).ok()?.split_once(' ')?;
    ((parsed.method, parsed.path) == (Some(method), Some(target))).then_some((
        method,
        target,
        before + line_bytes,
    ))
}

/// Whether the first line is one of a later minor version whose end has not come.
fn later_version_begins(data: &[u8]) -> bool {
    let line = &data[empty_lines(data)..];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    !line.contains(&b'\n')
        && line
            .split_last()
            .is_some_and(|(minor, rest)| matches!(minor, b'2'..=b'9') && rest.ends_with(b" HTTP/1."))
}

/// Bytes of empty lines before the first one of a request (RFC 9112 2.2).
fn empty_lines(data: &[u8]) -> usize {
    data.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

/// RFC 9110 2.5: a request of a later minor version is one of the latest that is known here.
fn check_later<'r, 'a>(
    data: &'a [u8],
    (method, target, line_bytes): (&'a str, &'a str, usize),
    head_bytes: usize,
    room: &'r mut Vec<RequestField<'a>>,
) -> (CheckedHead<'a>, &'r [RequestField<'a>]) {
    let mut lines = [httparse::EMPTY_HEADER; HEADER_LINES_MAX];
    let checked = match httparse::parse_headers(&data[line_bytes..], &mut lines) {
        Ok(httparse::Status::Complete((length, lines))) if line_bytes + length <= head_bytes => {
            *room = lines.to_vec();
            whole(&data[..line_bytes + length], method, target, 1, room)
        }
        Ok(httparse::Status::Partial) if data.len() < head_bytes => return (CheckedHead::Partial, &[]),
        Ok(_) => Err(too_long(data, head_bytes)),
        Err(httparse::Error::TooManyHeaders) => Err(HeadRefusal::TooLarge),
        Err(_) => Err(HeadRefusal::Malformed("not a request head")),
    };
    match checked {
        Ok(head) => (CheckedHead::Whole(head), room),
        Err(refusal) => (CheckedHead::Refused(refusal), &[]),
    }
}

fn whole<'a>(
    raw: &[u8],
    method: &'a str,
    target: &'a str,
    minor: u8,
    lines: &[RequestField<'a>],
) -> Result<RequestHead<'a>, HeadRefusal> {
    if bare_line_feed(raw) {
        return Err(HeadRefusal::Malformed("a bare line feed"));
    }
    let fields = lines.iter().map(|line| (line.name.as_bytes(), line.value));
    Ok(RequestHead { length: raw.len(), ..examine(method, target, minor, fields)? })
}

/// Checks the head of a request that came in parts, as HTTP/2 sends it: `fields` are the header fields, with the
/// authority as `host`. [`RequestHead::length`] is 0.
///
/// # Errors
/// The refusal of [`check`] for the lines of HTTP/1.1 that say the same.
pub fn check_fields<'a>(
    method: &'a str,
    target: &'a str,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<RequestHead<'a>, HeadRefusal> {
    let mut count = 0;
    let counted = fields.inspect(|_| count += 1);
    let head = examine(method, target, 1, counted)?;
    if count > HEADER_LINES_MAX { Err(HeadRefusal::TooLarge) } else { Ok(head) }
}

/// The entry for fuzzing: a head that is good in lines is good in parts, and says the same.
pub fn fuzz_head(data: &[u8]) {
    let mut room = Room::default();
    let (checked, lines) = check_lines(data, 16 << 10, &mut room);
    let CheckedHead::Whole(head) = checked else {
        return assert!(lines.is_empty(), "a head that is not whole has no lines");
    };
    let fields = lines.iter().map(|line| (line.name.as_bytes(), line.value));
    match check_fields(head.method, head.target, fields) {
        Ok(twin) => assert_eq!(
            (twin.host, twin.path, twin.query, twin.framing, twin.unusual),
            (head.host, head.path, head.query, head.framing, head.unusual)
        ),
        // HTTP/1.0 need not name a host.
        Err(refusal) => assert!(head.minor == 0, "{refusal:?}"),
    }
}

/// The part of a long head that is too long: its target, or all of it.
fn too_long(data: &[u8], head_bytes: usize) -> HeadRefusal {
    let line = data.split(|&byte| byte == b'\n').find(|line| line.len() > 1).unwrap_or(data);
    let target = line.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    // One that fills the room by itself.
    let is_all = line.len() >= head_bytes && !target.is_empty();
    if target.len() > TARGET_BYTES_MAX || is_all { HeadRefusal::TargetTooLong } else { HeadRefusal::TooLarge }
}

fn bad_version(data: &[u8]) -> HeadRefusal {
    let line = data.split(|&b| b == b'\r' || b == b'\n').find(|l| !l.is_empty()).unwrap_or(data);
    let mut words = line.split(|&b| b == b' ').filter(|word| !word.is_empty());
    match (words.nth(2), line.iter().filter(|&&b| b == b' ').count()) {
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), 2)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HeadRefusal::Version
        }
        _ => HeadRefusal::Malformed("not a version"),
    }
}

/// httparse takes a bare LF for the end of a line; others do not, so nobody may send one.
fn bare_line_feed(head: &[u8]) -> bool {
    memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// The values of the header lines, before they are put together.
#[derive(Default)]
struct HeadFields<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects: bool,
    unusual: bool,
    upgrade: Option<&'a [u8]>,
    /// `Connection: upgrade`.
    switches: bool,
    if_none_match: Option<&'a [u8]>,
    if_modified_since: Option<&'a [u8]>,
    accept_encoding: Option<&'a [u8]>,
    referer: &'a [u8],
    user_agent: &'a [u8],
}

/// SECURITY: RFC 9110 9.1 has methods in capitals, and lets case matter; some programs take `get` for `GET` all the
/// same.
fn check_method(method: &str) -> Result<(), HeadRefusal> {
    if !method.bytes().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')) {
        return Err(HeadRefusal::Malformed("not a method"));
    }
    match method {
        "CONNECT" | "TRACE" | "TRACK" => Err(HeadRefusal::NotImplemented),
        _ => Ok(()),
    }
}

fn examine<'a>(
    method: &'a str,
    text: &'a str,
    minor: u8,
    lines: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<RequestHead<'a>, HeadRefusal> {
    check_method(method)?;
    let mut fields = HeadFields::default();
    for (name, value) in lines {
        fields.take(name, value)?;
    }
    let place = target::split(method, text)?;
    let host = target::agree(minor, fields.host, &place)?;
    let framing = match (fields.chunked, fields.length) {
        (true, Some(_)) => return Err(HeadRefusal::Malformed("both Content-Length and Transfer-Encoding")),
        (true, None) if minor == 0 => return Err(HeadRefusal::Malformed("Transfer-Encoding in HTTP/1.0")),
        (true, None) => Framing::Chunked,
        (false, None | Some(0)) => Framing::None,
        (false, Some(length)) => Framing::Length(length),
    };
    Ok(RequestHead {
        length: 0,
        verb: match method {
            "GET" => Verb::Get,
            "HEAD" => Verb::Head,
            _ => Verb::Other,
        },
        method,
        target: text,
        path: place.path,
        query: place.query,
        minor,
        host,
        framing,
        keep: !fields.close && (minor == 1 || fields.keep_alive),
        // RFC 9110 10.1.1: an expectation in HTTP/1.0 is ignored.
        expects: fields.expects && minor == 1,
        unusual: fields.unusual,
        // RFC 9110 7.8: not in HTTP/1.0. A body would have to be read before what follows it.
        upgrade: fields.upgrade.filter(|_| fields.switches && minor == 1 && framing == Framing::None),
        if_none_match: fields.if_none_match,
        if_modified_since: fields.if_modified_since,
        accept_encoding: fields.accept_encoding,
        referer: fields.referer,
        user_agent: fields.user_agent,
    })
}

impl<'a> HeadFields<'a> {
    fn take(&mut self, name: &'a [u8], value: &'a [u8]) -> Result<(), HeadRefusal> {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is(b"host") => self.host(value)?,
            5 if is(b"range") => self.unusual = true,
            6 if is(b"expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(HeadRefusal::Expectation);
                }
                self.expects = true;
            }
            7 if is(b"upgrade") => {
                self.unusual = true;
                self.upgrade = Some(value);
            }
            7 if is(b"referer") => self.referer = value,
            8 if is(b"if-match") || is(b"if-range") => self.unusual = true,
            10 if is(b"connection") => self.connection(value),
            10 if is(b"user-agent") => self.user_agent = value,
            13 if is(b"if-none-match") => self.unusual |= self.if_none_match.replace(value).is_some(),
            14 if is(b"content-length") => self.content_length(value)?,
            15 if is(b"accept-encoding") => self.unusual |= self.accept_encoding.replace(value).is_some(),
            17 if is(b"transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HeadRefusal::Malformed("a Transfer-Encoding other than chunked"));
                }
                self.chunked = true;
            }
            17 if is(b"if-modified-since") => {
                self.unusual |= self.if_modified_since.replace(value).is_some();
            }
            19 if is(b"if-unmodified-since") => self.unusual = true,
            _ => {}
        }
        Ok(())
    }

    fn host(&mut self, value: &'a [u8]) -> Result<(), HeadRefusal> {
        match self.host.replace(value) {
            Some(_) => Err(HeadRefusal::Malformed("several Host")),
            None => Ok(()),
        }
    }

    fn connection(&mut self, value: &[u8]) {
        for token in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            self.close |= token.eq_ignore_ascii_case(b"close");
            self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            self.switches |= token.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), HeadRefusal> {
        let length = fields::length(value).ok_or(HeadRefusal::Malformed("not a Content-Length"))?;
        match self.length.replace(length) {
            Some(_) => Err(HeadRefusal::Malformed("several Content-Length")),
            None => Ok(()),
        }
    }
}

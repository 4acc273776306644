//! The head of a response of HTTP/1, how its body is delimited, and the pieces of the body.
//!
//! Runs in: the site worker, under the site's uid; pure. Untrusted input: the header fields of a backend's response.
//! Must never: delimit a body in two ways, or announce another length than is sent.

use http::header::{self, HeaderMap};
use http::{HeaderValue, StatusCode};
use request::fields::{has_option, options};

/// Bytes at the end of a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The properties of a request that decide about the framing of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTraits {
    /// Its method is `HEAD`.
    pub is_head: bool,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor: u8,
    /// Whether the connection may go on after the response.
    pub keep: bool,
}

/// How many bytes a response has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// So many.
    Known(u64),
    /// Nobody knows.
    Unknown,
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// There are so many bytes; none, for a response without a body.
    Length(u64),
    /// The last chunk says so.
    Chunked,
    /// The end of the connection.
    Close,
}

/// The properties of a response whose head was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartedResponse {
    pub body: BodyFraming,
    /// Whether the connection may go on after the response, as the client was told.
    pub keep: bool,
}

/// Appends the head of a response to `out`. `reason` is the phrase behind the status, if it is not the usual one.
///
/// RFC 9112 6: the framing is ours to say, and the connection as well: whatever else `headers` says of them is left
/// out. A `Content-Length` counts where the body itself does not know its size, and in the response to `HEAD`.
pub(crate) fn encode_head(
    out: &mut Vec<u8>,
    request: RequestTraits,
    status: StatusCode,
    reason: Option<&[u8]>,
    headers: &HeaderMap,
    size: BodySize,
) -> StartedResponse {
    let (body, length) = delimit(request, status, declared(headers), size);
    let switches = status == StatusCode::SWITCHING_PROTOCOLS;
    let says_close = || has_option(headers, b"close");
    let keep = request.keep && !switches && body != BodyFraming::Close && !says_close();
    push_status(out, request, status, reason);
    for (name, value) in headers {
        let ours = [header::CONNECTION, header::CONTENT_LENGTH, header::TRAILER, header::TRANSFER_ENCODING];
        if !ours.contains(name) {
            push_line(out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    push_connection(out, headers, if switches { None } else { option_of_ours(keep, request.minor) });
    match (body, length) {
        (_, Some(length)) => push_length(out, length),
        (BodyFraming::Chunked, None) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
    StartedResponse { body, keep }
}

/// Appends the status line. `reason` is the phrase behind the status, if it is not the usual one.
pub(super) fn push_status(
    out: &mut Vec<u8>,
    request: RequestTraits,
    status: StatusCode,
    reason: Option<&[u8]>,
) {
    out.extend_from_slice(if request.minor == 0 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    let usual = || status.canonical_reason().unwrap_or("Unknown").as_bytes();
    out.extend_from_slice(reason.unwrap_or_else(usual));
    out.extend_from_slice(b"\r\n");
}

/// The option of `Connection` that a client of this minor version gets, if it needs one.
fn option_of_ours(keep: bool, minor: u8) -> Option<&'static [u8]> {
    match (keep, minor) {
        (false, _) => Some(b"close"),
        (true, 0) => Some(b"keep-alive"),
        (true, _) => None,
    }
}

/// Appends `Connection` with what we say of it.
pub(super) fn push_connection_of_ours(out: &mut Vec<u8>, keep: bool, minor: u8) {
    if let Some(option) = option_of_ours(keep, minor) {
        push_line(out, b"connection", option);
    }
}

/// How a body is delimited, and the `Content-Length` to be said.
pub(super) fn delimit(
    request: RequestTraits,
    status: StatusCode,
    declared: Option<u64>,
    size: BodySize,
) -> (BodyFraming, Option<u64>) {
    // RFC 9112 6.3: these have no body. RFC 9110 8.6: nor a length; that of a 304 is optional.
    if status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        return (BodyFraming::Length(0), None);
    }
    if request.is_head {
        // The body, which is not sent, need not be there.
        let known = match size {
            BodySize::Known(length) if length > 0 => Some(length),
            BodySize::Known(_) | BodySize::Unknown => None,
        };
        return (BodyFraming::Length(0), declared.or(known));
    }
    match (size, declared) {
        (BodySize::Known(length), _) | (BodySize::Unknown, Some(length)) => {
            (BodyFraming::Length(length), Some(length))
        }
        (BodySize::Unknown, None) if request.minor == 0 => (BodyFraming::Close, None),
        (BodySize::Unknown, None) => (BodyFraming::Chunked, None),
    }
}

/// The one length that `Content-Length` names.
fn declared(headers: &HeaderMap) -> Option<u64> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter().map(length);
    let first = lines.next()??;
    lines.all(|other| other == Some(first)).then_some(first)
}

fn length(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// Appends `Connection` with `own`, and what else `headers` says there, if that is anything.
fn push_connection(out: &mut Vec<u8>, headers: &HeaderMap, own: Option<&[u8]>) {
    let is_ours =
        |option: &&[u8]| option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive");
    let others = options(headers).filter(|option| !is_ours(option));
    let start = out.len();
    for option in others.chain(own) {
        out.extend_from_slice(if out.len() == start { b"connection: " } else { b", " });
        out.extend_from_slice(option);
    }
    if out.len() > start {
        out.extend_from_slice(b"\r\n");
    }
}

pub(crate) fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn push_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    push_digits::<10>(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line before a chunk of so many bytes.
pub(crate) fn push_chunk_size(out: &mut Vec<u8>, length: usize) {
    push_digits::<16>(out, length as u64);
    out.extend_from_slice(b"\r\n");
}

fn push_digits<const BASE: u64>(out: &mut Vec<u8>, mut number: u64) {
    // LIMIT: u64::MAX has 20 digits to the base 10.
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(number % BASE) as usize];
        number /= BASE;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

//! Bytes of a whole answer, ready to be sent in one write.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none. Must never: be sent with another second's
//! date.

use std::cell::{Cell, OnceCell, Ref, RefCell};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use request::date::DATE_BYTES;

use ::http2::hpack;
use request::error::SERVER;
use request::fields::remove_of_connection;

/// Where the status stands.
const STATUS_AT: usize = "HTTP/1.1 ".len();
/// LIMIT: bytes of a header block of HTTP/2 that goes out in one frame, with what is put behind it.
const BLOCK_BYTES: usize = 8 << 10;

/// A head with a date, and perhaps a body, in one buffer.
pub struct PrebuiltResponse {
    bytes: RefCell<Vec<u8>>,
    date_at: usize,
    /// Where the empty line begins, and where a `Connection` line can be put in.
    pub split: usize,
    tick: Cell<u64>,
    /// The fields but the date, once HTTP/2 has asked for them.
    fields: OnceCell<HeaderMap>,
    /// The same as a header block of HTTP/2, if it is one.
    block: OnceCell<Option<Box<[u8]>>>,
}

impl PrebuiltResponse {
    pub(super) fn new(status: &str, fields: &str, body: &[u8]) -> PrebuiltResponse {
        let mut bytes = format!("HTTP/1.1 {status}\r\nServer: {SERVER}\r\nDate: ").into_bytes();
        let date_at = bytes.len();
        bytes.extend_from_slice(&[b'0'; DATE_BYTES]);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(fields.as_bytes());
        let split = bytes.len();
        bytes.reserve_exact(2 + body.len());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        PrebuiltResponse {
            bytes: RefCell::new(bytes),
            date_at,
            split,
            tick: Cell::new(0),
            fields: OnceCell::new(),
            block: OnceCell::new(),
        }
    }

    /// The bytes, with `date` put in if they bear that of another tick.
    #[inline]
    pub fn bytes(&self, tick: u64, date: impl FnOnce() -> [u8; DATE_BYTES]) -> Ref<'_, Vec<u8>> {
        if self.tick.replace(tick) != tick {
            let mut bytes = self.bytes.borrow_mut();
            bytes[self.date_at..self.date_at + DATE_BYTES].copy_from_slice(&date());
        }
        self.bytes.borrow()
    }

    /// The fields of the head but the date, which is another for each answer.
    pub fn fields(&self) -> &HeaderMap {
        self.fields.get_or_init(|| self.parse_fields())
    }

    fn parse_fields(&self) -> HeaderMap {
        let bytes = self.bytes.borrow();
        let mut headers = HeaderMap::with_capacity(16);
        for line in bytes[..self.split].split(|&byte| byte == b'\n').skip(1) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(at) = line.iter().position(|&byte| byte == b':') else { continue };
            let name = HeaderName::from_bytes(&line[..at]).ok().filter(|name| name != header::DATE);
            if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(line[at + 1..].trim_ascii())) {
                headers.append(name, value);
            }
        }
        headers
    }

    /// Status and fields as a header block of HTTP/2, for what is to be said of date and transport security to follow;
    /// `None` where a rule says something of the latter, or too much.
    pub fn block(&self) -> Option<&[u8]> {
        self.block.get_or_init(|| self.encode_block()).as_deref()
    }

    #[cold]
    fn encode_block(&self) -> Option<Box<[u8]>> {
        let mut headers = self.parse_fields();
        remove_of_connection(&mut headers);
        let bytes = self.bytes.borrow();
        let digits = bytes.get(STATUS_AT..STATUS_AT + 3)?.iter();
        let mut block = Vec::new();
        hpack::status(&mut block, digits.fold(0, |all, digit| 10 * all + u16::from(digit - b'0')));
        for (name, value) in &headers {
            hpack::field(&mut block, name.as_str().as_bytes(), value.as_bytes());
        }
        let is_good = !headers.contains_key(header::STRICT_TRANSPORT_SECURITY) && block.len() <= BLOCK_BYTES;
        is_good.then(|| block.into())
    }

    /// A piece of the body, of at most `length` bytes from `start`.
    pub fn piece(&self, start: usize, length: usize) -> Bytes {
        let bytes = self.bytes.borrow();
        let start = self.split + 2 + start;
        Bytes::copy_from_slice(&bytes[start..bytes.len().min(start + length)])
    }

    /// The body, of what [`PrebuiltResponse::bytes`] has given.
    pub fn body_of<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.split + 2..]
    }

    /// A copy of the body.
    pub fn body(&self) -> Bytes {
        self.piece(0, self.body_bytes())
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.bytes.borrow().len() - self.split - 2
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.borrow().len()
    }
}

//! Bytes of a whole answer, ready to be sent in one write.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none. Must never: be sent with another second's date.

use std::cell::{Cell, Ref, RefCell};

use request::date::DATE_BYTES;

use crate::http::SERVER;

/// A head with a date, and perhaps a body, in one buffer.
pub struct PrebuiltResponse {
    bytes: RefCell<Vec<u8>>,
    date_at: usize,
    /// Where the empty line begins, and where a `Connection` line can be put in.
    pub split: usize,
    tick: Cell<u64>,
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
        PrebuiltResponse { bytes: RefCell::new(bytes), date_at, split, tick: Cell::new(0) }
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

    /// A copy of the body.
    pub fn body(&self) -> bytes::Bytes {
        bytes::Bytes::copy_from_slice(&self.bytes.borrow()[self.split + 2..])
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.bytes.borrow().len() - self.split - 2
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.borrow().len()
    }
}

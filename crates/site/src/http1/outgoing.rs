//! The bytes of a response that wait for the client: its head, small pieces of its body gathered, and one large piece
//! as it is.
//!
//! Runs in: the site worker, under the site's uid; pure. Untrusted input: none that it looks at. Must never: send what
//! the head did not announce, copy a large piece, or let a response look whole whose body broke off.

use bytes::{Buf, Bytes};

use super::response::{BodyFraming, LAST_CHUNK, push_chunk_size};

/// LIMIT: bytes of a piece that is copied, to be sent together with others; copying so many costs less than another
/// write, or another slice of one.
const COPIED_BYTES: usize = 4 << 10;
/// LIMIT: bytes of small pieces gathered before they are written; under TLS, of one record.
const GATHERED_BYTES: usize = 16 << 10;

/// The bytes, and what is known of those to come.
pub(crate) struct ResponseOutput {
    /// The head, what delimits pieces, and small pieces; sent up to `start`.
    buffer: Vec<u8>,
    start: usize,
    /// A large piece, which follows, and what follows that.
    piece: Bytes,
    tail: &'static [u8],
    body: BodyFraming,
    /// Whether there is more of the body.
    is_open: bool,
    /// Whether the body has broken off.
    is_broken: bool,
}

impl ResponseOutput {
    /// A response whose head this is, with a body that is delimited so.
    pub fn new(head: Vec<u8>, body: BodyFraming) -> Self {
        let is_open = body != BodyFraming::Length(0);
        Self { buffer: head, start: 0, piece: Bytes::new(), tail: &[], body, is_open, is_broken: false }
    }

    /// Whether there is more of the body to come.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the body has broken off: the connection is to end behind what was sent.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether bytes wait.
    pub fn is_unsent(&self) -> bool {
        self.start < self.buffer.len() || !self.piece.is_empty() || !self.tail.is_empty()
    }

    /// Whether another piece may be added before some of them are sent.
    pub fn has_room(&self) -> bool {
        self.is_open && self.piece.is_empty() && self.buffer.len() - self.start < GATHERED_BYTES
    }

    /// Adds a piece of the body, after which there may be no more; tells how many bytes of it are sent.
    pub fn push(&mut self, mut data: Bytes, is_last: bool) -> usize {
        if let BodyFraming::Length(left) = &mut self.body {
            data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= data.len() as u64;
        }
        let count = data.len();
        if count > 0 {
            let is_chunked = self.body == BodyFraming::Chunked;
            if is_chunked {
                push_chunk_size(&mut self.buffer, count);
            }
            match count <= COPIED_BYTES {
                true => self.buffer.extend_from_slice(&data),
                false => self.piece = data,
            }
            if is_chunked {
                self.add(b"\r\n");
            }
        }
        if is_last || self.body == BodyFraming::Length(0) {
            self.end();
        }
        count
    }

    /// The body is over.
    pub fn end(&mut self) {
        match self.body {
            BodyFraming::Length(1..) => return self.break_off(),
            BodyFraming::Chunked => self.add(LAST_CHUNK),
            BodyFraming::Length(0) | BodyFraming::Close => {}
        }
        self.is_open = false;
    }

    /// The body has broken off; what came before is still sent.
    pub fn break_off(&mut self) {
        (self.is_open, self.is_broken) = (false, true);
    }

    /// Adds what follows a piece.
    fn add(&mut self, bytes: &'static [u8]) {
        match (self.piece.is_empty(), bytes) {
            (true, _) => self.buffer.extend_from_slice(bytes),
            (false, LAST_CHUNK) => self.tail = b"\r\n0\r\n\r\n",
            (false, _) => self.tail = bytes,
        }
    }

    /// Has what follows a head go out with the head in one write, where only one slice can be written at once: under
    /// TLS, in one record.
    pub fn pack(&mut self) {
        let held = self.buffer.len() - self.start;
        if held == 0 {
            return;
        }
        let count = self.piece.len().min(GATHERED_BYTES.saturating_sub(held));
        self.buffer.extend_from_slice(&self.piece[..count]);
        self.piece.advance(count);
        if self.piece.is_empty() {
            self.buffer.extend_from_slice(std::mem::take(&mut self.tail));
        }
    }

    /// The bytes, one slice behind the other.
    pub fn slices(&self) -> [&[u8]; 3] {
        [&self.buffer[self.start..], &self.piece, self.tail]
    }

    /// Notes that so many bytes are sent.
    pub fn advance(&mut self, mut count: usize) {
        let of_buffer = count.min(self.buffer.len() - self.start);
        self.start += of_buffer;
        count -= of_buffer;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        let of_piece = count.min(self.piece.len());
        self.piece.advance(of_piece);
        self.tail = &self.tail[count - of_piece..];
    }
}

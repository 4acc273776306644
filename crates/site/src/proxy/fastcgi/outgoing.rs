//! A request as it is written: its first records together with what is there of its body, then the rest as it comes.
//!
//! Untrusted input: the body of a request. Must never: end a body elsewhere than its length says.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use fastcgi::record::{CONTENT_MAX, STDIN_END, stdin_head};
use http::StatusCode;
use http_body::{Body, Frame};
use tokio::io::AsyncWrite;

use crate::http::body::{BodyError, BoundedBody};
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::{TimedUpload, UploadProgress};

/// The request.
pub(super) struct FastCgiWriter {
    /// Bytes to be written before the piece: the first records, and then the heads of others.
    text: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// How long the first records are, which stay in case that they are to be written again.
    begin: usize,
    /// The content of one record.
    piece: Bytes,
    /// Bytes to be written after the piece.
    end: &'static [u8],
    /// Bytes of the body that have come and are in no record yet.
    came: Bytes,
    body: TimedUpload,
    length: u64,
    /// Bytes of the body that are in no record yet.
    left: u64,
    /// Whether nothing of the body was asked for.
    is_new: bool,
}

impl FastCgiWriter {
    /// A request that begins with these records, and has a body of this length.
    pub fn new(mut begin: Vec<u8>, body: TimedUpload, length: u64) -> Self {
        if length == 0 {
            begin.extend_from_slice(&STDIN_END);
        }
        let (piece, came, is_new) = (Bytes::new(), Bytes::new(), length > 0);
        let (begin, text) = (begin.len(), begin);
        Self { text, written: 0, begin, piece, end: &[], came, body, length, left: length, is_new }
    }

    /// A request that is in memory as a whole, of which so much is written.
    pub fn resumed(text: Vec<u8>, written: usize, progress: Rc<UploadProgress>) -> Self {
        let begin = text.len();
        let body = TimedUpload::new(BoundedBody::empty(), progress);
        let (piece, came) = (Bytes::new(), Bytes::new());
        Self { text, written, begin, piece, end: &[], came, body, length: 0, left: 0, is_new: false }
    }

    /// Whether all of the request is written.
    pub fn is_written(&self) -> bool {
        self.left == 0 && !self.is_unsent()
    }

    /// Has the request written once more, whose body can be if there is one.
    pub fn restart(&mut self) {
        self.text.truncate(self.begin);
        self.written = 0;
        (self.piece, self.came, self.end) = (Bytes::new(), Bytes::new(), &[]);
        self.body.rewind(Bytes::new());
        (self.left, self.is_new) = (self.length, self.length > 0);
    }

    /// Gives back what was kept to be written once more.
    pub fn keep_no_longer(&mut self) {
        self.body.keep_no_longer();
        if self.is_written() {
            (self.text, self.written, self.begin) = (Vec::new(), 0, 0);
        }
    }

    /// Writes as far as the client and the server let it.
    ///
    /// # Errors
    /// The client's body is not as it should be. Whether the server is there is for the reader of its answer to find
    /// out.
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &mut BackendStream) -> Poll<Result<(), StatusCode>> {
        if std::mem::take(&mut self.is_new)
            && let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx)
        {
            self.take(frame)?;
            self.stage();
        }
        loop {
            while self.is_unsent() {
                match ready!(self.poll_write(cx, stream)) {
                    Ok(count) if count > 0 => self.advance(count),
                    _ => return Poll::Pending,
                }
            }
            if self.left == 0 {
                return Poll::Ready(Ok(()));
            }
            self.text.truncate(self.begin);
            self.written = self.begin;
            if self.came.is_empty() {
                let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
                self.take(frame)?;
            }
            self.stage();
        }
    }

    fn is_unsent(&self) -> bool {
        self.written < self.text.len() || !self.piece.is_empty() || !self.end.is_empty()
    }

    fn poll_write(&self, cx: &mut Context<'_>, stream: &mut BackendStream) -> Poll<io::Result<usize>> {
        let text = &self.text[self.written..];
        if self.piece.is_empty() && self.end.is_empty() {
            return Pin::new(stream).poll_write(cx, text);
        }
        let slices = [text, &self.piece, self.end].map(IoSlice::new);
        Pin::new(stream).poll_write_vectored(cx, &slices)
    }

    fn advance(&mut self, count: usize) {
        let of_text = count.min(self.text.len() - self.written);
        self.written += of_text;
        let of_piece = (count - of_text).min(self.piece.len());
        self.piece.advance(of_piece);
        self.end = &self.end[count - of_text - of_piece..];
    }

    /// Takes a part of the body. A body that ends early is the client's mistake, as is one that goes on.
    fn take(&mut self, frame: Option<Result<Frame<Bytes>, BodyError>>) -> Result<(), StatusCode> {
        let frame = frame.transpose().map_err(|error| error.status())?;
        let frame = frame.ok_or(StatusCode::BAD_REQUEST)?;
        self.came = frame.into_data().unwrap_or_default();
        match self.came.len() as u64 > self.left {
            true => Err(StatusCode::BAD_REQUEST),
            false => Ok(()),
        }
    }

    /// Makes a record of what has come, and the end of the body behind its last one.
    fn stage(&mut self) {
        // A record of no bytes would be the end.
        if self.came.is_empty() {
            return;
        }
        self.piece = self.came.split_to(self.came.len().min(CONTENT_MAX));
        self.text.extend_from_slice(&stdin_head(self.piece.len()));
        self.left -= self.piece.len() as u64;
        if self.left == 0 {
            self.end = &STDIN_END;
        }
    }
}

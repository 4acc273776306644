//! A request as it is written: its head together with the first piece of its body, then the rest as it comes.
//!
//! Untrusted input: the fields and the body of a request. Must never: announce another end of a body than the body has.

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::request::Parts;
use http::{StatusCode, header};
use http_body::{Body, Frame};
use tokio::io::AsyncWrite;

use super::Http1Failure;
use crate::http::body::{BodyError, BoundedBody};
use crate::proxy::retry::is_idempotent;
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::{TimedUpload, UploadProgress};

/// Room for what a head has beside its target and its fields.
const BESIDE_BYTES: usize = 64;

/// How the end of the body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// Bytes that are to come.
    Length(u64),
    Chunked,
}

/// The request.
pub(crate) struct RequestWriter {
    /// Bytes to be written before the piece: the head, and then the framing of chunks.
    text: Vec<u8>,
    /// How much of it is written.
    written: usize,
    piece: Bytes,
    body: TimedUpload,
    framing: Framing,
    /// Whether the last chunk has not been told to be over.
    chunk_is_open: bool,
    /// Whether nothing of the body was asked for.
    is_new: bool,
    /// Whether all of the body is in `text` and `piece`.
    is_ended: bool,
    /// Bytes of the body for a server that was gone already.
    unsent: Bytes,
}

impl RequestWriter {
    /// A request with these `parts`, whose fields are those for the backend.
    pub fn new(parts: &Parts, mut body: TimedUpload) -> Self {
        let is_ended = body.is_end_stream();
        if !is_ended && is_idempotent(&parts.method) {
            body.keep();
        }
        let framing = match body.size_hint().exact() {
            _ if is_ended => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
        // Of no body, nothing is said unless the client has said it.
        let is_told = !is_ended || parts.headers.contains_key(header::CONTENT_LENGTH);
        let text = encode(parts, is_told.then_some(framing));
        let (piece, unsent) = (Bytes::new(), Bytes::new());
        Self { text, written: 0, piece, body, framing, chunk_is_open: false, is_new: true, is_ended, unsent }
    }

    /// A request of whose `text`, which ends with its body, so much is written.
    pub fn resumed(text: Vec<u8>, written: usize, progress: Rc<UploadProgress>) -> Self {
        let body = TimedUpload::new(BoundedBody::empty(), progress);
        let (piece, unsent, framing) = (Bytes::new(), Bytes::new(), Framing::Length(0));
        let (chunk_is_open, is_new, is_ended) = (false, false, true);
        Self { text, written, piece, body, framing, chunk_is_open, is_new, is_ended, unsent }
    }

    /// The head as it is written.
    #[cfg(test)]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether all of the request is written.
    pub fn is_written(&self) -> bool {
        self.is_ended && !self.is_unsent()
    }

    /// Has the request written once more, whose body can be if there is one.
    pub fn restart(&mut self) {
        self.written = 0;
        let (piece, unsent) = (std::mem::take(&mut self.piece), std::mem::take(&mut self.unsent));
        self.body.rewind(if unsent.is_empty() { piece } else { unsent });
        self.is_ended = self.body.is_end_stream();
        self.is_new = !self.is_ended;
        self.framing = Framing::Length(self.body.size_hint().exact().unwrap_or_default());
    }

    /// Writes as far as the client and the backend let it.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut BackendStream,
    ) -> Poll<Result<(), Http1Failure>> {
        if std::mem::take(&mut self.is_new)
            && !self.is_ended
            && let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx)
        {
            self.stage(frame)?;
        }
        loop {
            while self.is_unsent() {
                let rest = &self.text[self.written..];
                let count = match self.piece.is_empty() {
                    true => ready!(Pin::new(&mut *stream).poll_write(cx, rest))?,
                    false => {
                        let slices = [IoSlice::new(rest), IoSlice::new(&self.piece)];
                        ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices))?
                    }
                };
                if count == 0 {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
                }
                if !stream.has_sent() && self.unsent.is_empty() {
                    self.unsent = self.piece.clone();
                }
                let of_text = count.min(rest.len());
                self.written += of_text;
                self.piece.advance(count - of_text);
            }
            if self.is_ended {
                return Poll::Ready(Ok(()));
            }
            // The head of a body that may be sent once more stays.
            if self.framing == Framing::Chunked {
                self.text.clear();
                self.written = 0;
            }
            if std::mem::take(&mut self.chunk_is_open) {
                self.text.extend_from_slice(b"\r\n");
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.stage(frame)?;
        }
    }

    fn is_unsent(&self) -> bool {
        self.written < self.text.len() || !self.piece.is_empty()
    }

    /// Makes a part of the body ready to be written, or its end.
    fn stage(&mut self, frame: Option<Result<Frame<Bytes>, BodyError>>) -> Result<(), Http1Failure> {
        let Some(frame) = frame.transpose().map_err(|error| Http1Failure::Client(error.status()))? else {
            self.is_ended = true;
            match self.framing {
                Framing::Length(0) => {}
                Framing::Length(_) => return Err(Http1Failure::Client(StatusCode::BAD_REQUEST)),
                Framing::Chunked => self.text.extend_from_slice(b"0\r\n\r\n"),
            }
            return Ok(());
        };
        // Trailers are not passed on.
        self.piece = frame.into_data().unwrap_or_default();
        match &mut self.framing {
            Framing::Length(left) => {
                let rest = left.checked_sub(self.piece.len() as u64);
                *left = rest.ok_or(Http1Failure::Client(StatusCode::BAD_REQUEST))?;
                self.is_ended = *left == 0;
            }
            // A chunk of no bytes would be the end.
            Framing::Chunked if self.piece.is_empty() => {}
            Framing::Chunked => {
                // INVARIANT: a `Vec` takes whatever is written.
                let _ = write!(self.text, "{:x}\r\n", self.piece.len());
                self.chunk_is_open = true;
            }
        }
        Ok(())
    }
}

/// The head of a request. Its body says how long it is, whatever the fields say.
fn encode(parts: &Parts, framing: Option<Framing>) -> Vec<u8> {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let of_fields =
        parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
    // It is held for as long as the backend takes: no more than it needs.
    let mut text = Vec::with_capacity(BESIDE_BYTES + target.len() + of_fields);
    for part in [parts.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &parts.headers {
        if *name != header::CONTENT_LENGTH && *name != header::TRANSFER_ENCODING {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                text.extend_from_slice(part);
            }
        }
    }
    // INVARIANT: a `Vec` takes whatever is written.
    let _ = match framing {
        Some(Framing::Length(length)) => write!(text, "content-length: {length}\r\n\r\n"),
        Some(Framing::Chunked) => text.write_all(b"transfer-encoding: chunked\r\n\r\n"),
        None => text.write_all(b"\r\n"),
    };
    text
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn the_body_says_how_long_it_is() {
        let (mut parts, ()) = Request::post("/p?q").header("a", "b").body(()).unwrap().into_parts();
        let encoded = |parts: &Parts, framing| String::from_utf8(encode(parts, framing)).unwrap();
        assert_eq!(encoded(&parts, None), "POST /p?q HTTP/1.1\r\na: b\r\n\r\n");
        parts.headers.insert(header::CONTENT_LENGTH, 7.into());
        parts.headers.insert(header::TRANSFER_ENCODING, http::HeaderValue::from_static("chunked"));
        let head = "POST /p?q HTTP/1.1\r\na: b\r\n";
        assert_eq!(encoded(&parts, Some(Framing::Length(0))), format!("{head}content-length: 0\r\n\r\n"));
        assert_eq!(
            encoded(&parts, Some(Framing::Chunked)),
            format!("{head}transfer-encoding: chunked\r\n\r\n")
        );
    }
}

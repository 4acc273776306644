//! The body of a response, read as it is asked for.
//!
//! Untrusted input: every byte of the body. Must never: keep a connection on which it is not certain where the next
//! response begins.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use request::chunks::{Chunks, Piece};
use request::{fields, response_head};
use tokio::io::AsyncReadExt as _;

use super::keep::Keep;
use super::outgoing::RequestWriter;
use super::shared::SharedConnection;
use crate::http::body::{BoxError, ResponseBody};
use crate::proxy::pool::Reusable as _;
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::Download;

/// LIMIT: bytes of a body read at once.
const STEP_BYTES: u64 = 32 << 10;

/// How the end of a body is found (RFC 9112 6.3).
#[derive(Debug)]
enum End {
    /// Bytes that are to come.
    Length(u64),
    Chunked(Box<(Chunks, Vec<u8>)>),
    /// The end of the connection.
    Closed,
}

impl End {
    /// Of a response that is not refused, and has therefore one end.
    fn of<B>(response: &Response<B>, to_head: bool) -> Self {
        let bodiless = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let headers = response.headers();
        if to_head || bodiless {
            return Self::Length(0);
        }
        if headers.contains_key(header::TRANSFER_ENCODING) {
            return Self::Chunked(Box::new((Chunks::of_server(), Vec::new())));
        }
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| fields::length(value.as_bytes()));
        length.map_or(Self::Closed, Self::Length)
    }
}

/// The body of `response`, which is not refused and answers a request to which `to_head` says whether it was a `HEAD`;
/// `rest` is what was read behind its head. The connection goes to `keep` once both messages are over.
pub(crate) fn receive<B>(
    (stream, outgoing): (BackendStream, RequestWriter),
    response: &Response<B>,
    to_head: bool,
    rest: Bytes,
    keep: Option<Keep>,
    silence: Option<Duration>,
) -> ResponseBody {
    let end = End::of(response, to_head);
    let keep = keep.filter(|_| !matches!(end, End::Closed));
    let is_written = outgoing.is_written();
    let link = match &end {
        End::Length(length)
            if *length <= rest.len() as u64
                // A backend that answers early and closes takes nothing more of the request.
                && (is_written || keep.is_none() || !stream.is_reusable()) =>
        {
            // All of it is there: no more is read, and bytes behind it end the connection.
            let body = rest.slice(..*length as usize);
            if let Some(keep) = keep.filter(|_| body.len() == rest.len()) {
                keep.put(stream);
            }
            return if body.is_empty() { ResponseBody::Empty } else { ResponseBody::Full(body) };
        }
        _ if is_written => BodyConnection::Own(stream),
        _ => BodyConnection::Shared(SharedConnection::begin(stream, outgoing)),
    };
    let (next, is_over, trailers) = (None, false, None);
    let mut incoming = Incoming { link, end, buffered: rest, next, is_over, trailers, keep };
    incoming.look_ahead();
    ResponseBody::Stream(Box::pin(Download::new(incoming, silence)))
}

/// A connection in use.
enum BodyConnection {
    Own(BackendStream),
    /// With a task that writes the rest of the request.
    Shared(SharedConnection),
    Gone,
}

/// See the file's head.
struct Incoming {
    link: BodyConnection,
    end: End,
    /// Bytes that were read and not looked at.
    buffered: Bytes,
    /// The next piece, by which it can be told whether there is one.
    next: Option<Result<Bytes, BoxError>>,
    is_over: bool,
    trailers: Option<HeaderMap>,
    keep: Option<Keep>,
}

impl Incoming {
    /// Finds the next piece in what was read, and the end of the body.
    fn look_ahead(&mut self) {
        let taken = self.take();
        if taken.is_err() {
            self.link = BodyConnection::Gone;
        }
        self.next = taken.transpose();
        self.is_over |= match &self.end {
            End::Length(left) => *left == 0,
            End::Chunked(state) => state.0.is_ended(),
            End::Closed => false,
        };
        if self.is_over {
            self.finish();
        }
    }

    fn take(&mut self) -> Result<Option<Bytes>, BoxError> {
        let count = match &mut self.end {
            End::Length(left) => {
                let count =
                    usize::try_from(*left).map_or(self.buffered.len(), |left| left.min(self.buffered.len()));
                *left -= count as u64;
                count
            }
            End::Closed => self.buffered.len(),
            End::Chunked(state) => loop {
                let (chunks, trailer) = &mut **state;
                let in_trailer = chunks.is_in_trailer();
                let Piece { framing, data } = chunks.take(&self.buffered)?;
                let framing = self.buffered.split_to(framing);
                if in_trailer {
                    trailer.extend_from_slice(&framing);
                }
                if data > 0 || framing.is_empty() {
                    break data;
                }
                if chunks.is_ended() {
                    self.trailers = response_head::trailers(trailer)?;
                    break 0;
                }
            },
        };
        Ok((count > 0).then(|| self.buffered.split_to(count)))
    }

    /// Gives the connection away.
    fn finish(&mut self) {
        // Bytes behind a response are nobody's.
        let keep = self.keep.take().filter(|_| self.buffered.is_empty());
        match std::mem::replace(&mut self.link, BodyConnection::Gone) {
            BodyConnection::Own(stream) => {
                if let Some(keep) = keep {
                    keep.put(stream);
                }
            }
            BodyConnection::Shared(shared) => shared.finish(keep),
            BodyConnection::Gone => {}
        }
    }

    /// Reads; nothing at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BoxError>> {
        // A byte more than is to come: a read that fills its buffer does not show that the socket is empty.
        let room = match &self.end {
            End::Length(left) => STEP_BYTES.min(left.saturating_add(1)),
            _ => STEP_BYTES,
        };
        let read = |cx: &mut Context<'_>, stream: &mut BackendStream| {
            ready!(stream.poll_readable(cx))?;
            let mut buffer = BytesMut::with_capacity(room as usize);
            ready!(pin!(stream.read_buf(&mut buffer)).poll(cx))?;
            Poll::Ready(Ok(buffer.freeze()))
        };
        match &mut self.link {
            BodyConnection::Own(stream) => read(cx, stream),
            BodyConnection::Shared(shared) => shared.poll(cx, read),
            BodyConnection::Gone => Poll::Ready(Err("its connection has gone".into())),
        }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        loop {
            if let Some(piece) = this.next.take() {
                if piece.is_ok() {
                    this.look_ahead();
                }
                return Poll::Ready(Some(piece.map(Frame::data)));
            }
            if this.is_over {
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let read = ready!(this.poll_read(cx));
            this.buffered = match (read, &this.end) {
                (Ok(read), _) if !read.is_empty() => read,
                (Ok(_), End::Closed) => {
                    this.is_over = true;
                    this.finish();
                    continue;
                }
                (read, _) => {
                    this.link = BodyConnection::Gone;
                    let error = read
                        .err()
                        .unwrap_or_else(|| "it closed the connection in the middle of its answer".into());
                    return Poll::Ready(Some(Err(error)));
                }
            };
            this.look_ahead();
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.next.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let next = self.next.as_ref().and_then(|next| next.as_ref().ok()).map_or(0, Bytes::len) as u64;
        match &self.end {
            End::Length(left) => SizeHint::with_exact(next + left),
            _ => SizeHint::default(),
        }
    }
}

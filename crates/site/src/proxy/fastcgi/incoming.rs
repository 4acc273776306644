//! A request that a FastCGI server is at, on a connection that the request's own future drives: it is written, and its
//! answer is read, which a server may send before it has all of the request.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: every byte of the server. Must never: keep a
//! connection on which it is not certain where the next answer begins.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fastcgi::record::{RecordDecoder, RecordError, RecordPart};
use fastcgi::reply::{self, CgiReply};
use http::{Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use request::fields;
use tokio::io::{AsyncRead, ReadBuf};

use super::ahead::Ahead;
use super::connections::{Connections, FastCgiConnection};
use super::outgoing::FastCgiWriter;
use super::words::Words;
use crate::http::body::{BoxError, ResponseBody};
use crate::proxy::http1::with_scratch;
use crate::proxy::response::{HEAD_BYTES_MAX, HEAD_LINES_MAX};
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::Download;

/// Why there is no answer, or no more of one.
#[derive(Debug, thiserror::Error)]
pub(super) enum FastCgiFailure {
    /// The body of the request was not as it should be.
    #[error("the request could not be sent to its end")]
    Client(StatusCode),
    /// The connection has ended; whether anything of the answer had come.
    #[error("the FastCGI server has gone in the middle of its answer")]
    Gone { heard: bool },
    #[error("{0}")]
    Malformed(String),
}

/// See the file's head. The connection is closed if this is dropped before the end of the answer.
pub(super) struct RunningRequest {
    connection: FastCgiConnection,
    pub outgoing: FastCgiWriter,
    decoder: RecordDecoder,
    words: Rc<Words>,
    /// Bytes of the answer that were read and not passed on.
    pending: BytesMut,
    /// Whether anything was read at all.
    heard: bool,
    ended: bool,
}

impl RunningRequest {
    /// The connection to the server.
    pub fn stream(&self) -> &BackendStream {
        &self.connection.stream
    }

    /// A request that is to be written.
    pub fn new(connection: FastCgiConnection, outgoing: FastCgiWriter, words: Rc<Words>) -> Self {
        let (decoder, pending) = (RecordDecoder::default(), BytesMut::new());
        Self { connection, outgoing, decoder, words, pending, heard: false, ended: false }
    }

    /// Whether no server has heard of the request.
    pub fn is_refused(&self) -> bool {
        self.connection.stream.is_refused()
    }

    /// Takes what had come of the answer already.
    pub fn take(&mut self, data: &[u8]) -> Result<(), FastCgiFailure> {
        self.heard |= !data.is_empty();
        self.digest(data).map_err(|bad| FastCgiFailure::Malformed(bad.to_string()))
    }

    /// Writes the request, and waits for the head of its answer.
    pub async fn head(&mut self) -> Result<CgiReply, FastCgiFailure> {
        let mut searched = 0;
        poll_fn(|cx| {
            loop {
                if let Some(reply) = self.take_head(&mut searched).transpose() {
                    return Poll::Ready(reply);
                }
                ready!(self.poll_step(cx))?;
            }
        })
        .await
    }

    fn take_head(&mut self, searched: &mut usize) -> Result<Option<CgiReply>, FastCgiFailure> {
        let length = reply::length(&self.pending, *searched);
        *searched = self.pending.len();
        match length {
            Some(length) if length <= HEAD_BYTES_MAX => {
                let head = self.pending.split_to(length);
                let reply = reply::parse(&head, HEAD_LINES_MAX);
                Ok(Some(reply.map_err(|bad| FastCgiFailure::Malformed(bad.to_string()))?))
            }
            None if self.pending.len() <= HEAD_BYTES_MAX => match self.ended {
                true => Err(FastCgiFailure::Malformed("answer without a head".to_owned())),
                false => Ok(None),
            },
            _ => Err(FastCgiFailure::Malformed(format!("answer with a head over {HEAD_BYTES_MAX} bytes"))),
        }
    }

    /// Writes as much as can be written, and reads what has come.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FastCgiFailure>> {
        if let Poll::Ready(Err(status)) = self.outgoing.poll(cx, &mut self.connection.stream) {
            return Poll::Ready(Err(FastCgiFailure::Client(status)));
        }
        with_scratch(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            let read = ready!(Pin::new(&mut self.connection.stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Err(FastCgiFailure::Gone { heard: self.heard }));
            }
            Poll::Ready(self.take(buffer.filled()))
        })
    }

    /// Takes the records that have arrived.
    fn digest(&mut self, mut read: &[u8]) -> Result<(), RecordError> {
        while let Some(part) = self.decoder.take(&mut read)? {
            match part {
                _ if self.ended => return Err(RecordError("a record after the end of the answer")),
                RecordPart::Stdout(bytes) => self.pending.extend_from_slice(bytes),
                RecordPart::Stderr(bytes) => self.words.say(bytes),
                RecordPart::End { complete: true } => self.ended = true,
                RecordPart::End { complete: false } => {
                    return Err(RecordError("that it does not take the request"));
                }
            }
        }
        Ok(())
    }

    /// The answer to a request of which `to_head` says whether it was a `HEAD`, with its body as it comes.
    pub fn answer(
        mut self,
        reply: CgiReply,
        to_head: bool,
        connections: &Connections,
        silence: Option<Duration>,
    ) -> Result<Response<ResponseBody>, FastCgiFailure> {
        self.outgoing.keep_no_longer();
        let mut answer = Response::new(ResponseBody::Empty);
        *answer.status_mut() = reply.status;
        *answer.headers_mut() = reply.headers;
        let mut left = length(&answer, to_head);
        if self.ended {
            let body = counted(self.pending.split().freeze(), &mut left);
            self.leave(connections);
            return match left {
                None | Some(0) => Ok(answer.map(|_| ResponseBody::Full(body))),
                Some(_) => Err(FastCgiFailure::Malformed(SHORT.to_owned())),
            };
        }
        // An answer to HEAD ends here, and its connection with it.
        if !to_head {
            let body = FastCgiBody { running: Some(self), left, connections: connections.clone() };
            let ahead = Ahead::of(body, connections.held.clone());
            *answer.body_mut() = ResponseBody::Stream(Box::pin(Download::new(ahead, silence)));
        }
        Ok(answer)
    }

    /// Keeps the connection, if the request was written to its end and nothing is left of the answer.
    fn leave(self, connections: &Connections) {
        if self.outgoing.is_written() && self.decoder.is_empty() {
            connections.put(self.connection);
        }
    }
}

const SHORT: &str = "an answer that is shorter than announced";

/// How many bytes the body of an answer has, where that is known.
fn length<B>(answer: &Response<B>, to_head: bool) -> Option<u64> {
    let bodiless = matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if to_head || bodiless {
        return Some(0);
    }
    fields::length(answer.headers().get(header::CONTENT_LENGTH)?.as_bytes())
}

/// A piece of the body, cut where that was announced to end.
fn counted(mut piece: Bytes, left: &mut Option<u64>) -> Bytes {
    if let Some(left) = left {
        piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= piece.len() as u64;
    }
    piece
}

/// The body of an answer.
struct FastCgiBody {
    /// Until the end of the answer.
    running: Option<RunningRequest>,
    left: Option<u64>,
    connections: Connections,
}

impl FastCgiBody {
    /// Reads until there is something to pass on, or the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        loop {
            if !running.pending.is_empty() {
                let piece = counted(running.pending.split().freeze(), &mut self.left);
                return Poll::Ready((!piece.is_empty()).then_some(Ok(piece)));
            }
            if running.ended {
                if let Some(running) = self.running.take() {
                    running.leave(&self.connections);
                }
                let short = self.left.is_some_and(|left| left > 0);
                return Poll::Ready(short.then(|| Err(SHORT.into())));
            }
            if let Err(failure) = ready!(running.poll_step(cx)) {
                self.running = None;
                return Poll::Ready(Some(Err(failure.into())));
            }
        }
    }
}

impl Body for FastCgiBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.get_mut().poll_piece(cx).map(|piece| piece.map(|result| result.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

//! A request that a FastCGI server is at: its answer is read while its body is still being written.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: every byte of the server. Must never: keep a
//! connection on which it is not certain where the next answer begins.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fastcgi::record::{Decoder, Malformed, Record};
use fastcgi::reply::{self, Reply};
use http::{Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use super::ahead::Ahead;
use super::connections::Connections;
use super::stdin::{self, Unsent};
use super::words::Words;
use crate::http::body::{BoxError, ResponseBody};
use crate::proxy::response::{HEAD_BYTES_MAX, HEAD_LINES_MAX};
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::{Download, Upload};

/// LIMIT: bytes read at once.
const STEP_BYTES: usize = 16 << 10;

/// A request under way; the connection is closed if this is dropped before the end of the answer.
pub(crate) struct Running {
    reader: Option<ReadHalf<BackendStream>>,
    decoder: Decoder,
    /// Writes the request.
    writer: Writer,
    connections: Connections,
    /// How often the pool had been emptied when this began.
    generation: u64,
    words: Rc<Words>,
    /// What was read of the answer and not passed on.
    pending: BytesMut,
    ended: bool,
    /// Bytes of the body that are to come, where the server has said so.
    left: Option<u64>,
}

/// Ends with whom it belongs to.
struct Writer(JoinHandle<Result<WriteHalf<BackendStream>, Unsent>>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why there is no answer.
pub(crate) struct Failure {
    /// What the client is told.
    pub status: StatusCode,
    /// What the log is told.
    pub what: Option<String>,
    /// Whether the server sent nothing at all.
    pub nothing: bool,
}

fn bad_gateway(what: impl Into<String>) -> Failure {
    Failure { status: StatusCode::BAD_GATEWAY, what: Some(what.into()), nothing: false }
}

impl Running {
    /// Begins to write a request.
    pub fn start(
        stream: BackendStream,
        begin: Vec<u8>,
        body: Upload,
        connections: Connections,
        words: Rc<Words>,
    ) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let writer = Writer(tokio::task::spawn_local(stdin::write(writer, begin, body)));
        Self {
            reader: Some(reader),
            decoder: Decoder::default(),
            writer,
            generation: connections.pool.generation(),
            connections,
            words,
            pending: BytesMut::new(),
            ended: false,
            left: None,
        }
    }

    /// Reads the head of the answer.
    pub async fn head(mut self) -> Result<(Reply, Self), Failure> {
        let mut nothing = true;
        let mut written = false;
        loop {
            if let Some(length) = reply::length(&self.pending).filter(|&length| length <= HEAD_BYTES_MAX) {
                let head = self.pending.split_to(length);
                let reply = reply::parse(&head, HEAD_LINES_MAX);
                return Ok((reply.map_err(|bad| bad_gateway(bad.to_string()))?, self));
            }
            if self.pending.len() > HEAD_BYTES_MAX {
                return Err(bad_gateway(format!("answer with a head over {HEAD_BYTES_MAX} bytes")));
            }
            if self.ended {
                return Err(bad_gateway("answer without a head"));
            }
            let Some(reader) = &mut self.reader else {
                return Err(bad_gateway("answer without a head"));
            };
            let room = self.decoder.room();
            room.reserve(STEP_BYTES);
            let count = tokio::select! {
                biased;
                count = reader.read_buf(room) => count,
                outcome = &mut self.writer.0, if !written => match outcome {
                    Ok(Err(Unsent::Client(status))) => return Err(Failure { status, what: None, nothing: false }),
                    Ok(Err(Unsent::Server)) | Err(_) => { written = true; continue }
                    Ok(Ok(half)) => {
                        written = true;
                        self.writer = Writer(tokio::task::spawn_local(async { Ok(half) }));
                        continue;
                    }
                },
            };
            match count {
                Ok(0) | Err(_) => {
                    let what = (!nothing).then(|| "answer that ended in its head".to_owned());
                    return Err(Failure { status: StatusCode::BAD_GATEWAY, what, nothing });
                }
                Ok(_) => nothing = false,
            }
            self.digest().map_err(|bad| bad_gateway(bad.to_string()))?;
        }
    }

    /// Takes the records that have arrived; whether the server was overloaded is an error as well.
    fn digest(&mut self) -> Result<(), Malformed> {
        while let Some(record) = self.decoder.take()? {
            match record {
                _ if self.ended => return Err(Malformed("a record after the end of the answer")),
                Record::Stdout(bytes) => self.pending.extend_from_slice(&bytes),
                Record::Stderr(bytes) => self.words.say(&bytes),
                Record::End { complete: true } => self.ended = true,
                Record::End { complete: false } => {
                    return Err(Malformed("that it does not take the request"));
                }
            }
        }
        Ok(())
    }

    /// The answer, with its body as it comes.
    pub fn answer(mut self, reply: Reply, silence: Option<Duration>) -> Response<ResponseBody> {
        let mut answer = Response::new(ResponseBody::Empty);
        let held = self.connections.held.clone();
        *answer.status_mut() = reply.status;
        *answer.headers_mut() = reply.headers;
        let length = answer.headers().get(header::CONTENT_LENGTH);
        self.left = length.and_then(|value| value.to_str().ok()?.parse().ok());
        *answer.body_mut() = ResponseBody::stream(Download::new(Ahead::of(Answer(self), held), silence));
        answer
    }

    /// Reads until there is something to pass on, or the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if !self.pending.is_empty() {
                let piece = self.pending.split().freeze();
                return Poll::Ready(self.counted(piece).map(Ok));
            }
            if self.ended {
                self.leave();
                let short = self.left.is_some_and(|left| left > 0);
                return Poll::Ready(short.then(|| Err("the answer is shorter than announced".into())));
            }
            let Some(reader) = &mut self.reader else {
                return Poll::Ready(None);
            };
            let mut bytes = [0; STEP_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(reader).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                self.reader = None;
                return Poll::Ready(Some(Err(
                    "the FastCGI server has gone in the middle of its answer".into()
                )));
            }
            self.decoder.room().extend_from_slice(buffer.filled());
            if let Err(bad) = self.digest() {
                self.reader = None;
                return Poll::Ready(Some(Err(bad.into())));
            }
        }
    }

    /// A piece of the body, cut where that was announced to end; `None` for one beyond.
    fn counted(&mut self, mut piece: Bytes) -> Option<Bytes> {
        if let Some(left) = &mut self.left {
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= piece.len() as u64;
        }
        (!piece.is_empty()).then_some(piece)
    }

    /// Keeps the connection, if the request was written to its end and nothing is left of the answer.
    fn leave(&mut self) {
        let Some(reader) = self.reader.take().filter(|_| self.decoder.is_empty()) else {
            return;
        };
        if !self.writer.0.is_finished() {
            return;
        }
        let waker = std::task::Waker::noop();
        let outcome = Pin::new(&mut self.writer.0).poll(&mut Context::from_waker(waker));
        if let Poll::Ready(Ok(Ok(writer))) = outcome {
            let pool = &self.connections.pool;
            pool.put(reader.unsplit(writer), self.generation);
        }
    }
}

/// The body of an answer.
struct Answer(Running);

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.get_mut().0.poll_piece(cx).map(|piece| piece.map(|result| result.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        self.0.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

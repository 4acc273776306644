//! A response's body that is written while it is sent.
//!
//! Runs in: a service's worker. Sees: what the service writes. Never: holds more than a few pieces that the client has
//! not taken; goes on for a client that is known to have gone.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use crate::context::Error;
use crate::{Response, ResponseBody};

/// LIMIT: pieces that are written and not sent. A task that writes more waits.
const PIECES_MAX: usize = 8;

/// The writing end of a body, made by [`Response::stream`].
#[derive(Debug)]
pub struct Writer(mpsc::Sender<Bytes>);

impl Writer {
    /// Writes a piece, once there is room for it.
    ///
    /// This future, and all that is written, is dropped where it waits when the client has gone.
    pub async fn write(&self, piece: impl Into<Bytes>) {
        let piece = piece.into();
        // RFC 9112 7.1: an empty chunk would be the end of the body.
        if !piece.is_empty() {
            // INVARIANT: the body owns what writes, so it is there.
            let _ = self.0.send(piece).await;
        }
    }
}

/// The task that writes a body.
type Work = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// A body, and the work that writes it: both are dropped together.
pub(crate) struct WrittenBody {
    work: Option<Work>,
    pieces: mpsc::Receiver<Bytes>,
    /// Why the work has ended early; told after what it has written.
    failure: Option<Error>,
    /// Ends the body when it is ready.
    end: Option<Pin<Box<dyn Future<Output = ()>>>>,
    idle: Option<Idle>,
}

/// Sends comments while nothing else is sent, so that a disconnected client is noticed, and proxies see a sign of life.
struct Idle {
    piece: &'static [u8],
    interval: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl WrittenBody {
    /// The body that `make` writes.
    pub(crate) fn new<F>(make: impl FnOnce(Writer) -> F) -> Self
    where
        F: Future<Output = Result<(), Error>> + 'static,
    {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        Self { work: Some(Box::pin(make(Writer(sender)))), pieces, failure: None, end: None, idle: None }
    }

    /// The same until `end` is ready.
    pub(crate) fn until(self, end: impl Future<Output = ()> + 'static) -> Self {
        Self { end: Some(Box::pin(end)), ..self }
    }

    /// The same with `piece` after each `interval` without another one.
    pub(crate) fn idling(self, piece: &'static [u8], interval: Duration) -> Self {
        Self { idle: Some(Idle { piece, interval, sleep: Box::pin(sleep(interval)) }), ..self }
    }

    /// Goes on with the work; the next piece, or `None` at the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        if let Poll::Ready(Some(piece)) = self.pieces.poll_recv(cx) {
            return Poll::Ready(Some(Ok(piece)));
        }
        if let Some(work) = &mut self.work
            && let Poll::Ready(outcome) = work.as_mut().poll(cx)
        {
            self.work = None;
            self.failure = outcome.err();
        }
        // None once the work has ended, as the writer has gone with it.
        let piece = ready!(self.pieces.poll_recv(cx)).map(Ok);
        Poll::Ready(piece.or_else(|| self.failure.take().map(Err)))
    }
}

impl Idle {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        ready!(self.sleep.as_mut().poll(cx));
        self.reset();
        Poll::Ready(Bytes::from_static(self.piece))
    }

    fn reset(&mut self) {
        self.sleep.as_mut().reset(Instant::now() + self.interval);
    }
}

impl http_body::Body for WrittenBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Poll::Ready(piece) = self.poll_piece(cx) {
            self.idle.iter_mut().for_each(Idle::reset);
            return Poll::Ready(piece.map(|piece| Ok(Frame::data(piece?))));
        }
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(None);
        }
        match &mut self.idle {
            Some(idle) => idle.poll(cx).map(|piece| Some(Ok(Frame::data(piece)))),
            None => Poll::Pending,
        }
    }
}

impl Response {
    /// A response whose body `make` writes while it is sent. An error breaks it off, so the client sees that it is not
    /// whole. Nothing is written to a client that asks by `HEAD`.
    ///
    /// ```
    /// use bulkhead_service::Response;
    ///
    /// let response = Response::stream("text/csv", async |writer| {
    ///     for row in 0..100_000 {
    ///         writer.write(format!("{row},{}\n", row * row)).await;
    ///     }
    ///     Ok(())
    /// });
    /// # drop(response);
    /// ```
    pub fn stream<F>(content_type: &'static str, make: impl FnOnce(Writer) -> F) -> Self
    where
        F: Future<Output = Result<(), Error>> + 'static,
    {
        Self::written(content_type, WrittenBody::new(make))
    }

    pub(crate) fn written(content_type: &'static str, body: WrittenBody) -> Self {
        let mut response = Self::new(content_type, "");
        *response.body_mut() = ResponseBody::streaming(body);
        response
    }
}

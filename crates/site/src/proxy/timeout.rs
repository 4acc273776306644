//! Bodies on their way to a server behind the site, and back: passed on as they come, and not waited for for ever.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: bodies of clients and servers. Must never: keep
//! more of a body than one piece, or wait for a server without a deadline.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use worker::ANSWER_TIMEOUT;

use crate::http::body::{BodyError, BoundedBody, BoxError};

/// LIMIT: how long the worker of another site may do nothing for a request that is relayed to it. It has deadlines of
/// its own for whoever it waits for, the longest an hour (`answer_timeout`); this is for a worker that hangs.
const SITE_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

/// How long a backend may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// To begin its response, once it has the request.
    pub answer: Duration,
    /// Between two pieces of its response; `None`: as long as it likes.
    silence: Option<Duration>,
}

impl Timeouts {
    /// Of the site's own services and functions. A service may be silent within a response, as one that sends events
    /// is.
    pub const OWN: Self = Self { answer: ANSWER_TIMEOUT, silence: None };

    /// Of another site's worker.
    pub const SITE: Self = Self { answer: SITE_TIMEOUT, silence: None };

    /// Of servers behind the site, where the operator says `timeout`.
    pub fn of(timeout: Duration) -> Self {
        Self { answer: timeout, silence: Some(timeout) }
    }

    /// How long a backend may be silent in a response with these headers. A stream of events has nothing to say while
    /// nothing happens, so its silence is no failure: it lasts until one of the two sides ends it.
    pub fn silence(&self, headers: &HeaderMap) -> Option<Duration> {
        self.silence.filter(|_| !is_event_stream(headers))
    }
}

/// HTML Living Standard, 9.2.5: the media type of server-sent events, parameters ignored.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/event-stream")
}

/// How far a request's body has come on its way to the server.
pub(crate) struct UploadProgress {
    moved: Cell<Instant>,
    /// Whether it is the client who is waited for: how long that may take is judged elsewhere.
    awaits_client: Cell<bool>,
}

impl UploadProgress {
    pub fn new() -> Rc<Self> {
        Self::since(Instant::now())
    }

    /// Of a request that began to be sent at this time.
    pub fn since(moved: Instant) -> Rc<Self> {
        Rc::new(Self { moved: Cell::new(moved), awaits_client: Cell::new(false) })
    }

    /// Something has moved.
    pub fn note(&self) {
        self.moved.set(Instant::now());
        self.awaits_client.set(false);
    }

    /// The client is waited for.
    pub fn wait_for_client(&self) {
        self.awaits_client.set(true);
    }

    /// Awaits `answer`; `None` once the server has done nothing for `timeout`.
    pub async fn watch<T>(&self, timeout: Duration, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            if let Ok(output) = tokio::time::timeout_at(self.moved.get() + timeout, answer.as_mut()).await {
                return Some(output);
            }
            if self.awaits_client.get() {
                self.moved.set(Instant::now());
            } else if self.moved.get().elapsed() >= timeout {
                return None;
            }
        }
    }
}

/// A request's body.
pub(crate) struct TimedUpload {
    inner: BoundedBody,
    progress: Rc<UploadProgress>,
}

impl TimedUpload {
    pub fn new(inner: BoundedBody, progress: Rc<UploadProgress>) -> Self {
        Self { inner, progress }
    }

    /// Has it come from its beginning once more, if that can be; `unsent` is what has come of it and was not sent.
    pub fn rewind(&mut self, unsent: Bytes) {
        self.inner.rewind(unsent);
    }

    /// Keeps all of it, if it is here, so that it can come once more when some of it was sent.
    pub fn keep(&mut self) {
        self.inner.keep();
    }

    /// Gives back what was kept of it.
    pub fn keep_no_longer(&mut self) {
        self.inner.keep_no_longer();
    }
}

impl Body for TimedUpload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        match polled {
            Poll::Pending => this.progress.wait_for_client(),
            Poll::Ready(_) => this.progress.note(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A server fell silent in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("the server behind the site fell silent in the middle of its answer")]
pub(crate) struct Silent;

/// A response's body, whose server may not be silent for longer than `silence`.
pub(crate) struct Download<B> {
    inner: B,
    silence: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> Download<B> {
    pub fn new(inner: B, silence: Option<Duration>) -> Self {
        Self { inner, silence, timer: None }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for Download<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.timer = None;
            return Poll::Ready(frame.map(|result| result.map_err(Into::into)));
        }
        let Some(silence) = this.silence else { return Poll::Pending };
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(silence)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err(Silent.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

//! The body of a request.
//!
//! Runs in: a service's worker. Sees: bytes that a client made up. Never: passes on more than the limit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::timer::StallTimer;

/// The state of a connection's current request.
///
/// It is shared with [`Body`], which has to be `Send` for tower's sake; hence atomics, on one thread.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    begun: AtomicU64,
    unread: AtomicBool,
    over_limit: AtomicBool,
    late_head: AtomicBool,
    upgraded: AtomicBool,
    answered: AtomicBool,
}

impl Flow {
    /// A request has begun: its head has arrived.
    pub(crate) fn begin(&self, has_body: bool) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.unread.store(has_body, Ordering::Relaxed);
        self.over_limit.store(false, Ordering::Relaxed);
    }

    /// How many requests have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// The rest of a head did not arrive in time.
    pub(crate) fn head_is_late(&self) {
        self.late_head.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ended because of that.
    pub(crate) fn late_head(&self) -> bool {
        self.late_head.load(Ordering::Relaxed)
    }

    /// The connection stops being HTTP after this request, and is the service's from here on.
    pub(crate) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }

    /// Whether the service has the connection, so that it may close its side alone.
    pub(crate) fn upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }

    /// The HTTP library has all of an answer after which the connection ends.
    pub(crate) fn has_answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Whether the end of the connection follows what is sent now.
    pub(crate) fn end_follows(&self) -> bool {
        self.answered.load(Ordering::Relaxed) && !self.unread() && !self.upgraded()
    }

    /// Whether the client may still be sending.
    pub(crate) fn unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Whether the body was found to be over its limit.
    pub(crate) fn over_limit(&self) -> bool {
        self.over_limit.load(Ordering::Relaxed)
    }
}

/// The body of a request, at most `body_bytes` of the configuration long.
#[derive(Debug)]
pub struct Body(BodySource);

#[derive(Debug)]
enum BodySource {
    Full(Option<Bytes>),
    Arriving(Box<Arriving>),
}

#[derive(Debug)]
struct Arriving {
    incoming: Incoming,
    limit: u64,
    left: u64,
    stall_timer: StallTimer,
    flow: Arc<Flow>,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is longer than the limit, in bytes; to be answered with 413.
    #[error("the request's body is over the limit of {0} bytes")]
    TooLong(u64),
    /// The client stopped sending for too long, or sends too slowly; to be answered with 408.
    #[error("the request's body did not go on arriving")]
    Stalled,
    /// The client sent something that is no body, or closed the connection; to be answered with 400.
    #[error("the request's body could not be read: {0}")]
    Broken(#[source] hyper::Error),
}

impl Body {
    /// All of it, if that is no more than `limit` bytes.
    pub(crate) async fn read_up_to(mut self, limit: u64) -> Result<Bytes, BodyError> {
        let mut whole = BytesMut::new();
        while let Some(frame) = self.frame().await {
            let piece = frame?.into_data().unwrap_or_default();
            if (whole.len() + piece.len()) as u64 > limit {
                return Err(BodyError::TooLong(limit));
            }
            if whole.is_empty() && self.is_end_stream() {
                return Ok(piece);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// No body at all.
    pub fn empty() -> Self {
        Self(BodySource::Full(None))
    }

    pub(crate) fn arriving(incoming: Incoming, limit: u64, stall: Option<Duration>, flow: Arc<Flow>) -> Self {
        Self(BodySource::Arriving(Box::new(Arriving {
            incoming,
            limit,
            left: limit,
            stall_timer: StallTimer::new(stall),
            flow,
        })))
    }
}

/// A body that is there already, for tests of a service.
impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self(BodySource::Full(Some(bytes.into())))
    }
}

impl Arriving {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            return self.stall_timer.poll(cx).map(|()| Some(Err(BodyError::Stalled)));
        };
        let data = next.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        self.stall_timer.moved(data.map_or(0, Bytes::len));
        let next = next.map(|frame| self.count(frame.map_err(BodyError::Broken)?));
        if next.is_none() || self.incoming.is_end_stream() {
            self.flow.unread.store(false, Ordering::Relaxed);
        }
        Poll::Ready(next)
    }

    /// Passes a frame on if it is within the limit.
    fn count(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyError> {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                Ok(frame)
            }
            None => {
                self.left = 0;
                self.flow.over_limit.store(true, Ordering::Relaxed);
                Err(BodyError::TooLong(self.limit))
            }
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            BodySource::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            BodySource::Arriving(arriving) => arriving.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Full(bytes) => bytes.is_none(),
            BodySource::Arriving(arriving) => arriving.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            BodySource::Arriving(arriving) => arriving.incoming.size_hint(),
        }
    }
}

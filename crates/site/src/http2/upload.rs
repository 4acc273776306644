//! The body of a request that came by HTTP/2.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the body; it is passed on unread. Must never: wait
//! for a client that sends nothing or too little, or have it send more than its window before somebody wants it.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::body::{BodyError, Intake};
use crate::pace::Pace;
use crate::partition::Limits;
use crate::socket::expired;

/// The body.
pub(crate) struct Upload {
    stream: RecvStream,
    /// Bytes announced.
    length: Option<u64>,
    came: u64,
    pace: Pace,
    timer: Option<Pin<Box<Sleep>>>,
    intake: Rc<Cell<Intake>>,
}

impl Upload {
    /// Of `length` bytes, if that was announced.
    pub fn new(stream: RecvStream, length: Option<u64>, limits: &Limits, intake: Rc<Cell<Intake>>) -> Self {
        let pace = Pace::new(limits.body_rate, limits.stall_timeout);
        Self { stream, length, came: 0, pace, timer: None, intake }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match this.stream.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => {
                this.pace.moved(data.len());
                this.came += data.len() as u64;
                // What is passed on is bounded by whoever takes it.
                let _ = this.stream.flow_control().release_capacity(data.len());
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(BodyError::Client(error.into())))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => this.pace.wait(),
        }
        if !this.pace.deadline().is_some_and(|deadline| expired(cx, &mut this.timer, deadline)) {
            return Poll::Pending;
        }
        this.intake.set(Intake::Slow);
        Poll::Ready(Some(Err(BodyError::Slow)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            Some(length) => SizeHint::with_exact(length.saturating_sub(self.came)),
            None if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
        }
    }
}

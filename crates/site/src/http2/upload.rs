//! The body of a request that came by HTTP/2.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the body; it is passed on unread. Must never: wait
//! for a client that sends nothing or too little, or have it send more than its window before somebody wants it.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http2::Stream;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::config::limits::ClientLimits;
use crate::connection::min_rate::TransferPace;
use crate::connection::socket::expired;
use crate::http::body::{BodyError, Intake};

/// LIMIT: how long, and how many bytes of, a body that nobody wants is taken after the answer: who sends a form or a
/// small file has sent it by then.
const REST_TIME: Duration = Duration::from_secs(1);
const REST_BYTES_MAX: usize = 64 << 10;

/// The source of a request's body; the answering task holds it to the end.
pub(crate) type Receiving = Rc<Stream>;

/// Takes what is left of a body that nobody wanted.
///
/// RFC 9113 8.1: a client that is told to stop sending right behind its answer must not lose the answer. Some do, as
/// curl 7.88 does, which Debian 12 has.
pub(crate) async fn discard(stream: &Receiving) {
    let rest = async {
        let mut left = REST_BYTES_MAX;
        while let Some(Ok(data)) = poll_fn(|cx| stream.poll_data(cx)).await {
            let Some(fewer) = left.checked_sub(data.len()) else { return };
            left = fewer;
            stream.release(data.len());
        }
    };
    let _ = tokio::time::timeout(REST_TIME, rest).await;
}

/// The body.
pub(crate) struct Http2Upload {
    stream: Receiving,
    /// Bytes announced.
    length: Option<u64>,
    received: u64,
    pace: TransferPace,
    timer: Option<Pin<Box<Sleep>>>,
    intake: Rc<Cell<Intake>>,
    /// Whether the client waits for the word to send it, and nothing was answered yet.
    expects: Rc<Cell<bool>>,
}

impl Http2Upload {
    /// Of `length` bytes, if that was announced; of a client that waits for the word to send it as long as it `expects`
    /// that.
    pub fn new(
        stream: Receiving,
        (length, expects): (Option<u64>, Rc<Cell<bool>>),
        limits: &ClientLimits,
        intake: Rc<Cell<Intake>>,
    ) -> Self {
        let pace = TransferPace::new(limits.body_rate, limits.stall_timeout);
        Self { stream, length, received: 0, pace, timer: None, intake, expects }
    }
}

impl Body for Http2Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        // RFC 9110 10.1.1: somebody wants it, so it is not refused.
        if this.expects.take() && !this.stream.is_end_stream() {
            let _ = this.stream.send_head(StatusCode::CONTINUE, &HeaderMap::new(), false);
        }
        match this.stream.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => {
                this.pace.moved(data.len());
                this.received += data.len() as u64;
                // The reader of the body limits how much is passed on.
                this.stream.release(data.len());
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
            Some(length) => SizeHint::with_exact(length.saturating_sub(self.received)),
            None if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
        }
    }
}

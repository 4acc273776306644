//! The body of a request that came by HTTP/1.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the body; its data are passed on unread. Must
//! never: wait for a client that sends nothing or too little, or read before somebody wants the body.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::connection::socket::expired;
use crate::context::SiteContext;
use crate::http::body::{BodyError, Intake};
use crate::http1::state::{ExchangeIo, ExchangeState};

/// The body. Trailers are read and left out: nobody behind us gets any.
pub(super) struct Http1Upload {
    site: Rc<SiteContext>,
    state: Rc<ExchangeState>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Http1Upload {
    pub fn new(site: Rc<SiteContext>, state: Rc<ExchangeState>) -> Self {
        Self { site, state, timer: None }
    }

    /// The next piece; nothing at the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            let state = &self.state;
            let taken = state
                .with_io(|exchange_io| exchange_io.take().map(|piece| (piece, exchange_io.is_complete())));
            let Some(taken) = taken else {
                // The response is over, and the connection at work on something else.
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let (piece, is_complete) = taken?;
            if is_complete {
                // Only now can the end of the connection be seen.
                state.wake(Some(cx.waker()));
            }
            if piece.is_some() || is_complete {
                return Poll::Ready(Ok(piece));
            }
            let mut scratch = self.site.scratch.borrow_mut();
            let read = state.with_io(|exchange_io| exchange_io.poll_read(cx, &mut scratch));
            match ready!(read.unwrap_or(Poll::Ready(Ok(0))))? {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                count => state.sends.moved(count),
            }
        }
    }
}

impl Body for Http1Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        this.state.ask_for_body(cx);
        let was_unsent = this.state.is_unsent();
        let polled = this.poll_piece(cx);
        if was_unsent || this.state.is_unsent() {
            this.state.return_writer(cx);
        }
        match polled {
            Poll::Ready(Ok(piece)) => return Poll::Ready(piece.map(|piece| Ok(Frame::data(piece)))),
            Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(BodyError::Client(error.into())))),
            Poll::Pending => this.state.sends.wait(),
        }
        if !this.state.sends.deadline().is_some_and(|deadline| expired(cx, &mut this.timer, deadline)) {
            return Poll::Pending;
        }
        this.state.intake.set(Intake::Slow);
        this.state.cut.set(this.state.status.get() != 0);
        this.state.wake(Some(cx.waker()));
        Poll::Ready(Some(Err(BodyError::Slow)))
    }

    fn is_end_stream(&self) -> bool {
        self.state.is_delivered()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.state.with_io(|exchange_io: &mut ExchangeIo| exchange_io.left()).flatten();
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Http1Upload {
    fn drop(&mut self) {
        // The exchange may be over but for this body.
        if !self.state.is_delivered() {
            self.state.wake(None);
        }
    }
}

//! The connection as the HTTP/2 library sees it: every byte passes, and its frames are counted.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what the client sends, of which only the heads of
//! frames are looked at. Must never: read on once a client has done too much.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use conditioning::http2::{Abuse, Excess, Limits};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{self, PREFACE, Scanner};
use crate::connection::output::Output;
use crate::connection::stream::Stream;

/// What the client has done.
pub(super) struct FrameCounters {
    abuse: RefCell<Abuse>,
    /// What was too much.
    pub excess: Cell<Option<Excess>>,
}

impl FrameCounters {
    /// For blocks of at most so many bytes, as compressed.
    pub fn new(block_bytes: u32) -> Self {
        let limits = Limits { block_bytes, ..Limits::default() };
        Self { abuse: RefCell::new(Abuse::new(limits)), excess: Cell::new(None) }
    }

    fn note(&self, count: impl FnOnce(&mut Abuse) -> Result<(), Excess>) {
        if let Err(excess) = count(&mut self.abuse.borrow_mut())
            && self.excess.get().is_none()
        {
            self.excess.set(Some(excess));
        }
    }
}

/// The adapter.
pub(super) struct CountingIo {
    stream: Rc<RefCell<Stream>>,
    output: Rc<Output>,
    counters: Rc<FrameCounters>,
    /// What was read from the socket before.
    preread: Bytes,
    received: Scanner,
    sent: Scanner,
}

impl CountingIo {
    pub fn new(
        stream: Rc<RefCell<Stream>>,
        output: Rc<Output>,
        counters: Rc<FrameCounters>,
        preread: Bytes,
    ) -> Self {
        let received = Scanner::after(PREFACE.len() as u32);
        Self { stream, output, counters, preread, received, sent: Scanner::default() }
    }
}

impl AsyncRead for CountingIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.counters.excess.get().is_some() {
            return Poll::Pending;
        }
        let before = out.filled().len();
        if this.preread.has_remaining() {
            let count = this.preread.len().min(out.remaining());
            out.put_slice(&this.preread.split_to(count));
        } else {
            ready!(this.stream.borrow_mut().poll_read(cx, out))?;
        }
        let (counters, now) = (&this.counters, Instant::now());
        this.received.scan(&out.filled()[before..], |frame| {
            counters.note(|abuse| frames::received(abuse, frame, now));
        });
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountingIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let slices = [IoSlice::new(bytes)];
        let count = ready!(this.output.poll_write(cx, &mut this.stream.borrow_mut(), &slices))?;
        let (counters, now) = (&this.counters, Instant::now());
        this.sent.scan(&bytes[..count], |frame| {
            counters.note(|abuse| frames::sent(abuse, frame, now));
        });
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output.poll_flush(cx, &mut self.stream.borrow_mut())
    }

    /// Does nothing: the connection is closed by whoever gets it back.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

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
use crate::tls::stream::STEP_BYTES;

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

/// What goes out: frames are gathered, so that those which are made in one go share records and system calls.
pub(super) struct Sender {
    stream: Rc<RefCell<Stream>>,
    output: Rc<Output>,
    counters: Rc<FrameCounters>,
    /// Not written yet; no buffer while there is nothing.
    gathered: RefCell<Vec<u8>>,
    sent: RefCell<Scanner>,
}

impl Sender {
    pub fn new(stream: Rc<RefCell<Stream>>, output: Rc<Output>, counters: Rc<FrameCounters>) -> Self {
        Self { stream, output, counters, gathered: RefCell::default(), sent: RefCell::default() }
    }

    /// Takes some of `bytes`; what was gathered goes out once that is [`STEP_BYTES`].
    fn poll_gather(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.gathered.borrow().len() >= STEP_BYTES {
            ready!(self.poll_write(cx))?;
        }
        let mut gathered = self.gathered.borrow_mut();
        let bytes = &bytes[..bytes.len().min(STEP_BYTES - gathered.len())];
        if gathered.capacity() < gathered.len() + bytes.len() {
            gathered.reserve_exact(STEP_BYTES);
        }
        gathered.extend_from_slice(bytes);
        let (counters, now) = (&self.counters, Instant::now());
        self.sent.borrow_mut().scan(bytes, |frame| {
            counters.note(|abuse| frames::sent(abuse, frame, now));
        });
        Poll::Ready(Ok(bytes.len()))
    }

    /// Writes what was gathered.
    fn poll_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.gathered.borrow_mut();
        while !gathered.is_empty() {
            let slices = [IoSlice::new(&gathered)];
            let count = ready!(self.output.poll_write(cx, &mut self.stream.borrow_mut(), &slices))?;
            gathered.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    /// Ready once the kernel has everything.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write(cx))?;
        self.gathered.take();
        self.output.poll_flush(cx, &mut self.stream.borrow_mut())
    }
}

/// The adapter.
pub(super) struct CountingIo {
    sender: Rc<Sender>,
    /// What was read from the socket before.
    preread: Bytes,
    received: Scanner,
}

impl CountingIo {
    pub fn new(sender: Rc<Sender>, preread: Bytes) -> Self {
        Self { sender, preread, received: Scanner::after(PREFACE.len() as u32) }
    }
}

impl AsyncRead for CountingIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Sender { stream, counters, .. } = &*this.sender;
        if counters.excess.get().is_some() {
            return Poll::Pending;
        }
        let before = out.filled().len();
        if this.preread.has_remaining() {
            let count = this.preread.len().min(out.remaining());
            out.put_slice(&this.preread.split_to(count));
        } else {
            ready!(stream.borrow_mut().poll_read(cx, out))?;
        }
        let now = Instant::now();
        this.received.scan(&out.filled()[before..], |frame| {
            counters.note(|abuse| frames::received(abuse, frame, now));
        });
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountingIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sender.poll_gather(cx, bytes)
    }

    /// Does nothing: the library flushes after each DATA frame. Whoever polls the library does so once, after that.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The connection is closed by whoever gets it back.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.poll_flush(cx)
    }
}

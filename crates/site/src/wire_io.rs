//! The stream as hyper sees it: the bytes of one request, then an end.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what the client sends; it is passed on
//! unread. Must never: take a byte of the next request from the socket for hyper.
//!
//! Why an end: hyper with `half_close` allowed does not read past the request it is busy with, and when it
//! has answered and flushed, it asks for the next. That it is told "no more" lets its future resolve by
//! itself, without `Connection: close` on the answer; [`Gauge::finished`] tells this end from a real one.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// LIMIT: bytes of a body read at once.
const STEP_BYTES: usize = 16 << 10;

/// What the exchange must know of hyper's use of the stream.
#[derive(Default)]
pub(crate) struct Gauge {
    /// hyper has answered and asked for another request.
    pub finished: Cell<bool>,
    /// All bytes of the request have been given to hyper.
    pub delivered: Cell<bool>,
    /// Since when the client has been waited for.
    pub waiting: Cell<Option<Instant>>,
    /// Bytes written.
    pub written: Cell<u64>,
    /// The answer's status, once there is one.
    pub status: Cell<u16>,
    /// Bytes of the answer's body given to hyper.
    pub body_bytes: Cell<u64>,
}

impl Gauge {
    fn wait(&self) {
        if self.waiting.get().is_none() {
            self.waiting.set(Some(Instant::now()));
        }
    }
}

/// How much of the stream belongs to the request after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// So many bytes.
    Exactly(u64),
    /// As many as hyper takes; the connection ends with this request.
    Free,
}

/// The adapter.
pub(crate) struct Wire {
    pub stream: Rc<RefCell<TcpStream>>,
    pub gauge: Rc<Gauge>,
    /// The head, rewritten.
    pub head: Bytes,
    /// What was read from the socket after the head.
    pub taken: Bytes,
    pub left: Left,
}

impl Wire {
    /// Whether the request has been read from the socket completely, as far as can be told.
    pub fn complete(&self) -> bool {
        self.left == Left::Exactly(0)
    }

    fn use_up(&mut self, count: usize) {
        if let Left::Exactly(left) = &mut self.left {
            *left = left.saturating_sub(count as u64);
        }
        self.gauge.waiting.set(None);
        self.gauge.delivered.set(self.complete());
    }

    fn allowed(&self, room: usize) -> usize {
        match self.left {
            Left::Exactly(left) => room.min(usize::try_from(left).unwrap_or(usize::MAX)),
            Left::Free => room,
        }
    }

    fn read_socket(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        out: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; STEP_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes[..room.min(STEP_BYTES)]);
        let polled = Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, &mut buffer);
        if polled.is_pending() {
            self.gauge.wait();
        }
        ready!(polled)?;
        out.put_slice(buffer.filled());
        self.use_up(buffer.filled().len());
        Poll::Ready(Ok(()))
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Pending => self.gauge.wait(),
            Poll::Ready(Ok(count)) => {
                self.gauge.waiting.set(None);
                self.gauge.written.set(self.gauge.written.get() + *count as u64);
            }
            Poll::Ready(Err(_)) => {}
        }
        polled
    }
}

impl hyper::rt::Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.head.has_remaining() {
            let count = this.head.len().min(out.remaining());
            out.put_slice(&this.head.split_to(count));
            this.gauge.delivered.set(this.head.is_empty() && this.complete());
            return Poll::Ready(Ok(()));
        }
        if this.complete() {
            this.gauge.finished.set(true);
            return Poll::Ready(Ok(()));
        }
        let room = this.allowed(out.remaining());
        if this.taken.is_empty() {
            return this.read_socket(cx, room, &mut out);
        }
        let count = this.taken.len().min(room);
        out.put_slice(&this.taken.split_to(count));
        this.use_up(count);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.stream.borrow_mut()).poll_write_vectored(cx, slices);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: hyper flushes before it; whether the connection goes on is not hyper's to say.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

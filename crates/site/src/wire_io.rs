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
use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::body::Intake;
use crate::pace::{PROBE, Pace};
use crate::partition::Limits;

/// LIMIT: bytes of a body read at once.
const STEP_BYTES: usize = 16 << 10;

/// What the exchange must know of hyper's use of the stream.
pub(crate) struct Gauge {
    /// hyper has answered and asked for another request.
    pub finished: Cell<bool>,
    /// All bytes of the request have been given to hyper.
    pub delivered: Cell<bool>,
    /// How far the request's body has come.
    pub intake: Rc<Cell<Intake>>,
    /// How fast the client sends it.
    pub sends: Pace,
    /// How fast the client takes the answer.
    pub takes: Rc<Pace>,
    /// When the kernel is to be asked whether there is room for more, whatever epoll says.
    pub probe: Cell<Option<Instant>>,
    /// Bytes written.
    pub written: Cell<u64>,
    /// The answer's status, once there is one.
    pub status: Cell<u16>,
    /// Bytes of the answer's body given to hyper.
    pub body_bytes: Cell<u64>,
}

impl Gauge {
    /// For a client that keeps these limits, and takes answers at this pace.
    pub fn new(limits: &Limits, takes: Rc<Pace>) -> Self {
        Self {
            finished: Cell::default(),
            delivered: Cell::default(),
            intake: Rc::default(),
            sends: Pace::new(limits.body_rate, limits.stall_timeout),
            takes,
            probe: Cell::default(),
            written: Cell::default(),
            status: Cell::default(),
            body_bytes: Cell::default(),
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
            self.gauge.sends.wait();
        }
        ready!(polled)?;
        out.put_slice(buffer.filled());
        self.gauge.sends.moved(buffer.filled().len());
        self.use_up(buffer.filled().len());
        Poll::Ready(Ok(()))
    }

    /// Passes on how a write went; what epoll sees no room for is tried all the same once it is time to.
    fn wrote(&self, polled: Poll<io::Result<usize>>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let gauge = &self.gauge;
        let count = match polled {
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                gauge.takes.wait();
                let now = Instant::now();
                let next = gauge.takes.deadline().map_or(now + PROBE, |at| at.min(now + PROBE));
                match gauge.probe.get() {
                    None => {
                        gauge.probe.set(Some(next));
                        return Poll::Pending;
                    }
                    Some(at) if now < at => return Poll::Pending,
                    Some(_) => gauge.probe.set(Some(next)),
                }
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match rustix::net::send(&*self.stream.borrow(), bytes, flags) {
                    Ok(count) => count,
                    Err(_) => return Poll::Pending,
                }
            }
        };
        gauge.probe.set(None);
        gauge.takes.moved(count);
        gauge.written.set(gauge.written.get() + count as u64);
        Poll::Ready(Ok(count))
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
        if this.gauge.intake.get() == Intake::Slow {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
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
        self.wrote(polled, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.stream.borrow_mut()).poll_write_vectored(cx, slices);
        self.wrote(polled, slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice))
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

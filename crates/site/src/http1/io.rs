//! The stream as hyper sees it: the bytes of one request, then an end.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what the client sends; it is passed on
//! unread. Must never: take a byte of the next request from the socket for hyper.
//!
//! Why an end: hyper with `half_close` allowed does not read past the request it is busy with, and when it
//! has answered and flushed, it asks for the next. That it is told "no more" lets its future resolve by
//! itself, without `Connection: close` on the answer; [`ExchangeState::finished`] tells this end from a real one.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use hyper::rt::ReadBufCursor;
use request::chunks::Chunks;
use tokio::io::{AsyncWrite, ReadBuf};

use crate::config::limits::Limits;
use crate::connection::min_rate::Pace;
use crate::connection::stream::Stream;
use crate::http::body::Intake;
use crate::http::websocket::Opened;
use crate::proxy::limit::Stall;

/// LIMIT: bytes of a body read at once.
const STEP_BYTES: usize = 16 << 10;

/// What the exchange must know of hyper's use of the stream.
pub(crate) struct ExchangeState {
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
    /// Whether the body of the answer has broken off.
    pub broke: Cell<bool>,
    /// What the connection becomes after the answer, if not one of HTTP.
    pub tunnel: RefCell<Option<Opened>>,
    /// Where the request holds a place that may be taken back.
    pub stall: RefCell<Option<Stall>>,
}

impl ExchangeState {
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
            broke: Cell::default(),
            tunnel: RefCell::default(),
            stall: RefCell::default(),
        }
    }

    /// Notes how a write went, of which the kernel took `moved` bytes. What epoll sees no room for is to be tried all the
    /// same once it is time to: whether it is.
    fn wrote<T>(&self, polled: &Poll<io::Result<T>>, moved: usize) -> bool {
        if moved > 0 || matches!(polled, Poll::Ready(Ok(_))) {
            self.probe.set(None);
            self.takes.moved(moved);
        }
        if polled.is_ready() {
            return false;
        }
        self.takes.wait();
        let now = Instant::now();
        match self.probe.get() {
            Some(at) if now < at => false,
            before => {
                self.probe.set(Some(self.takes.probe(now)));
                before.is_some()
            }
        }
    }

    /// Writes through `write`, and without asking the runtime where that is called for.
    pub fn write(
        &self,
        stream: &RefCell<Stream>,
        bytes: &[u8],
        write: impl FnOnce(&mut Stream, &mut usize) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut moved = 0;
        let mut polled = write(&mut stream.borrow_mut(), &mut moved);
        if self.wrote(&polled, moved) {
            moved = 0;
            if let Ok(count) = stream.borrow_mut().try_write(bytes, &mut moved) {
                polled = Poll::Ready(Ok(count));
            }
            if moved > 0 {
                self.wrote(&polled, moved);
            }
        }
        if let Poll::Ready(Ok(count)) = polled {
            self.written.set(self.written.get() + count as u64);
        }
        polled
    }

    /// Has the kernel take what is encrypted and waits for it.
    pub fn flush(&self, stream: &RefCell<Stream>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !stream.borrow().is_tls() {
            return Poll::Ready(Ok(()));
        }
        let mut moved = 0;
        let mut polled = stream.borrow_mut().poll_flush(cx, &mut moved);
        if self.wrote(&polled, moved) {
            moved = 0;
            let tried = stream.borrow_mut().try_write(&[], &mut moved);
            if tried.is_ok() {
                polled = Poll::Ready(Ok(()));
            }
            if moved > 0 {
                self.wrote(&polled, moved);
            }
        }
        polled
    }
}

/// How much of the stream belongs to the request after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// So many bytes.
    Exactly(u64),
    /// As many as hyper takes of this chunked body; the connection ends with this request.
    Chunked(Chunks),
}

/// The adapter.
pub(crate) struct SingleRequestIo {
    pub stream: Rc<RefCell<Stream>>,
    pub state: Rc<ExchangeState>,
    /// The head, rewritten.
    pub head: Bytes,
    /// What was read from the socket after the head.
    pub preread: Bytes,
    pub left: Left,
}

impl SingleRequestIo {
    /// Whether the request has been read from the socket completely, as far as can be told.
    pub fn complete(&self) -> bool {
        self.left == Left::Exactly(0)
    }

    /// Takes account of bytes of the body that hyper is given.
    fn use_up(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.left {
            Left::Exactly(left) => *left = left.saturating_sub(bytes.len() as u64),
            // SECURITY: hyper takes blanks behind a size, and any byte in an extension, which others do not.
            Left::Chunked(chunks) => chunks.look(bytes).map_err(io::Error::other)?,
        }
        self.state.delivered.set(self.complete());
        Ok(())
    }

    fn allowed(&self, room: usize) -> usize {
        match self.left {
            Left::Exactly(left) => room.min(usize::try_from(left).unwrap_or(usize::MAX)),
            Left::Chunked(_) => room,
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
        let polled = self.stream.borrow_mut().poll_read(cx, &mut buffer);
        if polled.is_pending() {
            self.state.sends.wait();
        }
        ready!(polled)?;
        self.use_up(buffer.filled())?;
        out.put_slice(buffer.filled());
        self.state.sends.moved(buffer.filled().len());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Read for SingleRequestIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.head.has_remaining() {
            let count = this.head.len().min(out.remaining());
            out.put_slice(&this.head.split_to(count));
            this.state.delivered.set(this.head.is_empty() && this.complete());
            return Poll::Ready(Ok(()));
        }
        if this.complete() {
            this.state.finished.set(true);
            return Poll::Ready(Ok(()));
        }
        if this.state.intake.get() == Intake::Slow {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let room = this.allowed(out.remaining());
        if this.preread.is_empty() {
            return this.read_socket(cx, room, &mut out);
        }
        let count = this.preread.len().min(room);
        let bytes = this.preread.split_to(count);
        this.use_up(&bytes)?;
        out.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for SingleRequestIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.state.write(&self.stream, bytes, |stream, moved| stream.poll_write(cx, bytes, moved))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        self.state.write(&self.stream, first, |stream, moved| match stream {
            Stream::Plain(tcp) => {
                let count = ready!(Pin::new(tcp).poll_write_vectored(cx, slices))?;
                *moved += count;
                Poll::Ready(Ok(count))
            }
            Stream::Tls(_) => stream.poll_write(cx, first, moved),
        })
    }

    /// Under TLS, a head and what follows are to be in one record.
    fn is_write_vectored(&self) -> bool {
        !self.stream.borrow().is_tls()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.flush(&self.stream, cx)
    }

    /// Does nothing: hyper flushes before it; whether the connection goes on is not hyper's to say.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

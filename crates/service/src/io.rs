//! A client's connection, or a relayed one, as hyper reads and writes it.
//!
//! Runs in: a service's worker. Sees: the bytes of clients. Never: interprets more of them than the version of a
//! request.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use tokio::io::ReadBuf;
use tokio::sync::oneshot;
use zeroize::Zeroize as _;

use crate::body::Flow;
use crate::first_line::FirstLine;
use crate::stream::ServiceStream;
use crate::timer::{Stall, StallTimer};

/// How much one read takes.
const READ_MAX: usize = 16 * 1024;

/// How long we wait, after our answer, for a client that is still sending.
///
/// LIMIT: a round trip or two; longer would let such clients hold the worker's places.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// The answer to a client whose head does not arrive.
const TOO_LATE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

thread_local! {
    /// One buffer for all connections: bytes are passed on as soon as they are read.
    static READ: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
}

/// A connection: bytes that were read before it came here, then what is in its socket.
#[derive(Debug)]
pub(crate) struct Io {
    preread: Vec<u8>,
    /// How many of `preread` have been read.
    replayed: usize,
    stream: ServiceStream,
    write_stall_timer: StallTimer,
    head: HeadTimer,
    /// Where in a head its bytes are, where clients are heard that may speak a later version.
    first_line: Option<FirstLine>,
    linger: Linger,
    /// Whether the kernel may hold something back until the end.
    is_held_back: bool,
    flow: Arc<Flow>,
    /// Goes with it, which somebody may wait for.
    end: Option<oneshot::Sender<Infallible>>,
}

/// A limit to the time from the first byte of a request's head to its last.
///
/// hyper has one timer for this and for the time without any request. A head whose first bytes came along with the
/// request before is under hyper's timer alone, until its next byte arrives.
#[derive(Debug)]
struct HeadTimer {
    limit: Option<Duration>,
    /// Runs while a head is incomplete.
    time: Option<Stall>,
    /// How many requests had begun before it.
    before: u64,
}

impl HeadTimer {
    /// Whether bytes that arrive now are the first of a head.
    fn is_new(&self, begun: u64) -> bool {
        self.time.is_none() || self.before != begun
    }

    /// Bytes have arrived that belong to no request which has begun.
    fn arrives(&mut self, begun: u64) {
        if self.is_new(begun) {
            self.before = begun;
            self.time = Some(Stall::new(self.limit));
        }
    }

    /// Ready when the head that is under way has taken too long.
    fn poll_late(&mut self, begun: u64, cx: &mut Context<'_>) -> Poll<()> {
        if self.before != begun {
            self.time = None;
        }
        match &mut self.time {
            Some(time) => time.poll(cx),
            None => Poll::Pending,
        }
    }
}

/// Where a connection is in its end.
#[derive(Debug)]
enum Linger {
    Open,
    Lingering(Stall),
}

impl Io {
    /// Takes over a connection; a write that makes no progress for `write_stall`, or too little, fails.
    pub(crate) fn new(
        descriptor: OwnedFd,
        preread: Vec<u8>,
        write_stall: Option<Duration>,
        flow: Arc<Flow>,
    ) -> Self {
        Self {
            preread,
            replayed: 0,
            stream: ServiceStream::new(descriptor),
            write_stall_timer: StallTimer::new(write_stall),
            head: HeadTimer { limit: None, time: None, before: 0 },
            first_line: None,
            linger: Linger::Open,
            is_held_back: false,
            flow,
            end: None,
        }
    }

    /// A receiver that ends, with an error, once this connection is gone, wherever it is by then.
    pub(crate) fn end(&mut self) -> oneshot::Receiver<Infallible> {
        let (sender, receiver) = oneshot::channel();
        self.end = Some(sender);
        receiver
    }

    /// Ends the connection when a head takes longer than `limit` from its first byte on.
    pub(crate) fn limit_heads(&mut self, limit: Duration) {
        self.head.limit = Some(limit);
    }

    /// Takes requests of later minor versions for those of HTTP/1.1.
    pub(crate) fn take_later_versions(&mut self) {
        self.first_line = Some(FirstLine::default());
    }

    /// Makes of what has arrived what the parser understands.
    fn amend(&mut self, bytes: &mut [u8]) {
        let Some(first_line) = self.first_line.as_mut().filter(|_| !self.flow.upgraded()) else { return };
        if first_line.is_lost() && !self.flow.unread() && self.head.is_new(self.flow.begun()) {
            *first_line = FirstLine::default();
        }
        first_line.amend(bytes);
    }

    /// Sends small answers at once, for a connection that stays open.
    pub(crate) fn set_nodelay(&self) {
        self.stream.set_nodelay();
    }

    /// Passes the outcome of a read on, unless it has been pending for too long within a head.
    fn read(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<()>> {
        let begun = self.flow.begun();
        if outcome.is_pending() {
            ready!(self.head.poll_late(begun, cx));
            self.flow.head_is_late();
            // The socket has room: all answers before have been sent. If not, the client must do without.
            let _ = self.stream.write_now(TOO_LATE);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if matches!(outcome, Poll::Ready(Ok(1..))) && !self.flow.unread() {
            self.head.arrives(begun);
        }
        outcome.map_ok(drop)
    }

    /// Passes the outcome of a write on, unless it has been pending for too long.
    fn written(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(outcome) = result {
            self.write_stall_timer.moved(outcome.as_ref().map_or(0, |&count| count));
            return Poll::Ready(outcome);
        }
        ready!(self.write_stall_timer.poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Discards what still arrives until the client has closed, or for long enough.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Linger::Lingering(time) = &mut self.linger else {
            return Poll::Ready(());
        };
        if time.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        READ.with_borrow_mut(|scratch| {
            loop {
                let mut buffer = ReadBuf::new(scratch);
                let outcome = ready!(self.stream.poll_read(cx, &mut buffer));
                buffer.filled_mut().zeroize();
                match outcome {
                    Ok(()) if !buffer.filled().is_empty() => {}
                    _ => return Poll::Ready(()),
                }
            }
        })
    }
}

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.replayed < this.preread.len() {
            let mut preread = std::mem::take(&mut this.preread);
            let rest = &mut preread[this.replayed..];
            let count = rest.len().min(out.remaining());
            this.amend(&mut rest[..count]);
            out.put_slice(&rest[..count]);
            this.replayed += count;
            if this.replayed == preread.len() {
                this.replayed = 0;
            } else {
                this.preread = preread;
            }
            return this.read(cx, Poll::Ready(Ok(count)));
        }
        let outcome = READ.with_borrow_mut(|scratch| {
            let count = scratch.len().min(out.remaining());
            let mut buffer = ReadBuf::new(&mut scratch[..count]);
            ready!(this.stream.poll_read(cx, &mut buffer))?;
            this.amend(buffer.filled_mut());
            out.put_slice(buffer.filled());
            // SECURITY: it may hold a user's key; this buffer lives on.
            buffer.filled_mut().zeroize();
            Poll::Ready(Ok(buffer.filled().len()))
        });
        this.read(cx, outcome)
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let end_follows = self.flow.end_follows();
        self.is_held_back |= end_follows;
        let result = self.stream.poll_write_vectored(cx, parts, end_follows);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets hold nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.linger, Linger::Open) {
            if self.is_held_back {
                // Not by closing: the gate may still have a descriptor. A client that is gone needs no end.
                let _ = ready!(self.stream.poll_shutdown(cx));
                return Poll::Ready(Ok(()));
            }
            if !self.flow.unread() && !self.flow.upgraded() {
                // hyper drops the connection next, which says the same to the client.
                return Poll::Ready(Ok(()));
            }
            ready!(self.stream.poll_shutdown(cx))?;
            if !self.flow.unread() {
                return Poll::Ready(Ok(()));
            }
            // RFC 9112 9.6: closing while the client still sends would reset the connection, and our answer
            // might be lost with it.
            self.linger = Linger::Lingering(Stall::new(Some(LINGER_MAX)));
        }
        self.poll_linger(cx).map(Ok)
    }
}

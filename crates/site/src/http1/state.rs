//! The state that the two sides of an exchange share: the reader of the request's body, perhaps in a task of its own,
//! and the writer of the response.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the bytes behind a head; those of a body are passed
//! on unread. Must never: take a byte of the next request for one of this one, or give the connection to somebody whose
//! exchange is over.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use request::chunks::{Chunks, Piece};
use tokio::io::ReadBuf;

use crate::config::limits::ClientLimits;
use crate::connection::min_rate::TransferPace;
use crate::connection::output::SendBuffer;
use crate::connection::stream::ClientStream;
use crate::head::Framing;
use crate::http::body::Intake;
use crate::http::websocket::OpenTunnel;
use crate::proxy::limit::Stall;

/// LIMIT: bytes of a body read at once.
const STEP_BYTES: usize = 64 << 10;
/// Reads of a body end at a multiple of this, so that a file that the body waits in has whole pages written.
const PAGE_BYTES: usize = 4 << 10;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How much of the stream belongs to the request after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemainingBody {
    /// So many bytes.
    Exactly(u64),
    /// The rest of this chunked body; the connection ends with this request.
    Chunked(Chunks),
}

/// The connection during an exchange.
pub(super) struct ExchangeIo {
    pub stream: ClientStream,
    /// Bytes that were read from the socket and not yet used up.
    pub preread: Bytes,
    left: RemainingBody,
    /// How far beyond a page what was given of the body ends.
    beyond: usize,
}

impl ExchangeIo {
    pub fn new(stream: ClientStream, preread: Bytes, framing: Framing) -> Self {
        let left = match framing {
            Framing::None => RemainingBody::Exactly(0),
            Framing::Length(length) => RemainingBody::Exactly(length),
            Framing::Chunked => RemainingBody::Chunked(Chunks::default()),
        };
        Self { stream, preread, left, beyond: 0 }
    }

    /// Whether the request has been read completely.
    pub fn is_complete(&self) -> bool {
        match self.left {
            RemainingBody::Exactly(left) => left == 0,
            RemainingBody::Chunked(chunks) => chunks.is_ended(),
        }
    }

    /// Bytes of the body that are still to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        match self.left {
            RemainingBody::Exactly(left) => Some(left),
            RemainingBody::Chunked(chunks) => chunks.is_ended().then_some(0),
        }
    }

    /// The next piece of the body, out of what was read; `None` if there is none.
    pub fn take(&mut self) -> io::Result<Option<Bytes>> {
        let data = match &mut self.left {
            RemainingBody::Exactly(left) => {
                let count =
                    usize::try_from(*left).map_or(self.preread.len(), |left| left.min(self.preread.len()));
                *left -= count as u64;
                count
            }
            RemainingBody::Chunked(chunks) => {
                let Piece { framing, data } = chunks.take(&self.preread).map_err(io::Error::other)?;
                self.preread.advance(framing);
                data
            }
        };
        self.beyond = (self.beyond + data) % PAGE_BYTES;
        Ok((data > 0).then(|| self.preread.split_to(data)))
    }

    /// Reads from the socket, nothing of the next request; tells how many bytes.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = match self.left {
            RemainingBody::Exactly(left) => usize::try_from(left).unwrap_or(usize::MAX),
            RemainingBody::Chunked(_) => usize::MAX,
        };
        let room = room.min(scratch.len()).min(STEP_BYTES - self.beyond);
        let mut buffer = ReadBuf::new(&mut scratch[..room]);
        ready!(self.stream.poll_read(cx, &mut buffer))?;
        // INVARIANT: nothing is read before all that was is used up.
        self.preread = Bytes::copy_from_slice(buffer.filled());
        Poll::Ready(Ok(self.preread.len()))
    }

    /// Throws away what has come of a body that nobody wanted: if that is all, the connection is good for the next
    /// request.
    pub fn discard(&mut self, scratch: &mut [u8]) {
        let mut nobody = Context::from_waker(Waker::noop());
        let mut reads = 0;
        while !self.is_complete() {
            match self.take() {
                Ok(Some(_)) => {}
                Ok(None) if self.is_complete() => {}
                Ok(None) if reads == 0 => {
                    reads = 1;
                    if !matches!(self.poll_read(&mut nobody, scratch), Poll::Ready(Ok(1..))) {
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// See the head of the file.
pub(super) struct ExchangeState {
    /// `None` once the exchange is over: what is left of it finds no connection.
    exchange_io: RefCell<Option<ExchangeIo>>,
    pub output: SendBuffer,
    /// How far the request's body has come.
    pub intake: Rc<Cell<Intake>>,
    /// How fast the client sends it.
    pub sends: TransferPace,
    /// The response's status, once there is one.
    pub status: Cell<u16>,
    /// Bytes of the response that are not of its body.
    pub head_bytes: Cell<u64>,
    /// Bytes of the response's body that were to be written.
    pub body_bytes: Cell<u64>,
    /// Whether the body of the request came too slowly after the response had begun, too late for another one.
    pub cut: Cell<bool>,
    /// Whether the body of the response has broken off.
    pub broke: Cell<bool>,
    /// Whether the next request may follow the response.
    pub keep: Cell<bool>,
    /// The tunnel that the connection becomes after the response, if it does not stay with HTTP.
    pub tunnel: RefCell<Option<OpenTunnel>>,
    /// Where the request holds a place that may be taken back.
    pub stall: RefCell<Option<Stall>>,
    /// Whether the client waits for the word to send its body.
    expects: Cell<bool>,
    /// The bytes left to be written of an interim response.
    interim: Cell<&'static [u8]>,
    /// The task of the exchange, which is not always the one that reads the body.
    task: RefCell<Option<Waker>>,
    /// The one that reads the body, if it waits for the client to take what is encrypted.
    reader: RefCell<Option<Waker>>,
}

impl ExchangeState {
    /// For a client that keeps these limits, and takes responses at this pace.
    pub fn new(
        exchange_io: ExchangeIo,
        limits: &ClientLimits,
        takes: Rc<TransferPace>,
        expects: bool,
    ) -> Self {
        let intake = if exchange_io.is_complete() { Intake::Done } else { Intake::Open };
        Self {
            exchange_io: RefCell::new(Some(exchange_io)),
            output: SendBuffer::new(takes),
            intake: Rc::new(Cell::new(intake)),
            sends: TransferPace::new(limits.body_rate, limits.stall_timeout),
            status: Cell::default(),
            head_bytes: Cell::default(),
            body_bytes: Cell::default(),
            cut: Cell::default(),
            broke: Cell::default(),
            keep: Cell::default(),
            tunnel: RefCell::default(),
            stall: RefCell::default(),
            expects: Cell::new(expects),
            interim: Cell::default(),
            task: RefCell::default(),
            reader: RefCell::default(),
        }
    }

    /// Has `use_it` use the connection, unless the exchange is over.
    pub fn with_io<T>(&self, use_it: impl FnOnce(&mut ExchangeIo) -> T) -> Option<T> {
        self.exchange_io.borrow_mut().as_mut().map(use_it)
    }

    /// Ends the exchange.
    pub fn end(&self) -> Option<ExchangeIo> {
        self.exchange_io.take()
    }

    /// Whether the whole request has been read from the connection.
    pub fn is_delivered(&self) -> bool {
        self.with_io(|exchange_io| exchange_io.is_complete()).unwrap_or(true)
    }

    /// Notes the task of the exchange.
    pub fn set_task(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        match &mut *task {
            Some(task) => task.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// Wakes the task of the exchange, unless it is the one with this waker.
    pub fn wake(&self, ours: Option<&Waker>) {
        let task = self.task.borrow();
        if let Some(task) = task.as_ref().filter(|task| !ours.is_some_and(|ours| task.will_wake(ours))) {
            task.wake_by_ref();
        }
    }

    /// Whether encrypted bytes wait for the client.
    pub fn is_unsent(&self) -> bool {
        self.with_io(|exchange_io| exchange_io.stream.is_unsent()).unwrap_or_default()
    }

    /// Under TLS, reading has encrypted bytes sent as well, and so takes the writer's place with the runtime, which
    /// knows one task for each direction. Gives the place back, and remembers whom to wake when the client has taken
    /// something.
    pub fn return_writer(&self, cx: &Context<'_>) {
        if self.is_unsent() {
            *self.reader.borrow_mut() = Some(cx.waker().clone());
        }
        self.wake(Some(cx.waker()));
    }

    /// Has the client take what is encrypted, whoever did that.
    pub fn poll_unsent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_unsent() { self.poll_flush(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Notes that the client has taken something.
    fn taken<T>(&self, polled: Option<Poll<io::Result<T>>>) -> Poll<io::Result<T>> {
        let polled = polled.unwrap_or(Poll::Ready(Err(io::ErrorKind::NotConnected.into())));
        if polled.is_ready() {
            self.reader.take().into_iter().for_each(Waker::wake);
        }
        polled
    }

    /// Somebody wants the body: a client that waits for that is told, if its response has not begun.
    pub fn ask_for_body(&self, cx: &Context<'_>) {
        if self.expects.take() && self.status.get() == 0 {
            self.interim.set(CONTINUE);
            self.wake(Some(cx.waker()));
        }
    }

    /// Takes the bytes left of an interim response, for the writer of the final one.
    pub fn take_interim(&self) -> &'static [u8] {
        self.interim.take()
    }

    /// Writes the interim response.
    pub fn poll_interim(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.interim.get().is_empty() {
            return Poll::Ready(Ok(()));
        }
        while let rest @ [_, ..] = self.interim.get() {
            let count = ready!(self.poll_write(cx, &[IoSlice::new(rest)]))?;
            self.head_bytes.set(self.head_bytes.get() + count as u64);
            self.interim.set(&rest[count..]);
        }
        self.poll_flush(cx)
    }

    /// Writes some of `slices`; tells how many bytes.
    pub fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.taken(self.with_io(|exchange_io| self.output.poll_write(cx, &mut exchange_io.stream, slices)))
    }

    /// Ready once the kernel has all that was written.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.taken(self.with_io(|exchange_io| self.output.poll_flush(cx, &mut exchange_io.stream)))
    }

    /// Ready once nobody reads the body of the request any more.
    pub fn poll_settled(&self) -> Poll<()> {
        match self.intake.get() {
            Intake::Open if !self.is_delivered() => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

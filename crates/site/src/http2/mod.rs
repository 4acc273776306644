//! A connection that speaks HTTP/2: streams, each answered by a task of its own.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: all bytes of the connection; the library reads
//! them, and `frames` counts them. Must never: wait for a client without a deadline, or let one connection hold more
//! than its limits.

mod cached;
pub mod frames;
mod io;
mod request;
mod stream;
mod tunnel;
pub(crate) mod upload;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection as Http2Connection};
use http::HeaderValue;
use tokio::task::JoinSet;

use self::io::{CountingIo, FrameCounters, Sender};
use crate::config::limits::Limits;
use crate::connection::output::Output;
use crate::connection::socket::{Socket, expired};
use crate::connection::state::{Connection, Next};
use crate::connection::stream::Stream;

/// LIMIT: requests at once, on one connection: what browsers expect (RFC 9113 6.5.2 recommends at least 100).
const STREAMS_MAX: u32 = 128;
/// LIMIT: bytes of a body that may wait here for whoever wants them, of one stream and of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// LIMIT: bytes of an answer that may wait for the socket, of one stream; of all of them, 4 MiB.
const SEND_BYTES: usize = 32 << 10;
/// LIMIT: streams that we reset for errors of the client's in the life of a connection; `frames` counts by the time.
const PROVOKED_MAX: usize = 1000;
/// LIMIT: after the last word, so long does the client have to take it.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// One of the two has said that this is the end, if only of what was wrong.
    Told,
    /// The client knew that it was the end, and had its time.
    Done,
    /// The connection broke off, or the client did too much.
    Failed,
    /// The client takes nothing.
    Slow,
}

/// A connection at work.
struct Session {
    connection: Http2Connection<CountingIo, Bytes>,
    tasks: JoinSet<()>,
    sender: Rc<Sender>,
    output: Rc<Output>,
    counters: Rc<FrameCounters>,
    /// Since when no request is being answered.
    idle: Option<Instant>,
    /// Since when the client knows that it is to go.
    leaving: Option<Instant>,
    abusive: bool,
    /// The certificate that the client has shown.
    shown: Option<HeaderValue>,
}

fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BYTES)
        .max_local_error_reset_streams(Some(PROVOKED_MAX))
        .enable_connect_protocol();
    builder
}

impl Connection<'_> {
    /// Speaks HTTP/2 until one of the two has had enough.
    pub(crate) async fn http2(&mut self, mut drained: Pin<&mut impl Future<Output = ()>>) -> Next {
        let Some(stream) = self.lend() else {
            return Next::Close;
        };
        let limits = self.site.worker.limits();
        let stream = Rc::new(RefCell::new(stream));
        // By itself, as an idle connection would keep the room for it.
        let begun = Box::pin(self.begin(stream.clone(), limits)).await;
        let over = match begun {
            None => Over::Failed,
            Some(mut session) => {
                self.slot.mark_idle();
                let over = poll_fn(|cx| self.poll_session(cx, &mut session, drained.as_mut(), limits)).await;
                self.slot.mark_busy();
                over
            }
        };
        match over {
            Over::Told | Over::Done | Over::Failed => {}
            Over::Slow => self.site.shed.note(|shed| shed.slow_response += 1),
        }
        // INVARIANT: the session and its adapter are gone, so nobody else holds the stream.
        let stream = Rc::into_inner(stream).map(RefCell::into_inner);
        self.socket = stream.filter(|_| matches!(over, Over::Told | Over::Done)).map(Socket::Registered);
        if over == Over::Told {
            // Who says goodbye may have said more after it, and shall still get what it was sent before.
            self.linger().await;
        }
        Next::Close
    }

    /// Waits for the preface and the first settings; nothing if they are wrong, or late.
    async fn begin(&mut self, stream: Rc<RefCell<Stream>>, limits: &Limits) -> Option<Box<Session>> {
        let shown = stream.borrow().client_certificate();
        let output = Rc::new(Output::new(self.takes()));
        let counters = Rc::new(FrameCounters::new(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX)));
        let preread = Bytes::from(std::mem::take(&mut self.preread));
        let sender = Rc::new(Sender::new(stream, output.clone(), counters.clone()));
        let mut handshake = pin!(builder(limits).handshake(CountingIo::new(sender.clone(), preread)));
        let handshake = poll_fn(|cx| {
            let polled = handshake.as_mut().poll(cx);
            let _ = sender.poll_flush(cx);
            polled
        });
        let began = tokio::time::timeout(limits.head_timeout, handshake).await;
        let connection = match began {
            Err(_) => {
                self.site.shed.note(|shed| shed.late_head += 1);
                return None;
            }
            Ok(Err(_)) => {
                self.site.shed.note(|shed| shed.malformed += 1);
                return None;
            }
            Ok(Ok(connection)) => connection,
        };
        let idle = Some(Instant::now());
        let (tasks, leaving, abusive) = (JoinSet::new(), None, false);
        Some(Box::new(Session { connection, tasks, sender, output, counters, idle, leaving, abusive, shown }))
    }

    fn poll_session(
        &mut self,
        cx: &mut Context<'_>,
        session: &mut Session,
        mut drained: Pin<&mut impl Future<Output = ()>>,
        limits: &Limits,
    ) -> Poll<Over> {
        let mut asked = false;
        loop {
            let polled = self.poll_streams(cx, session);
            let flushed = session.sender.poll_flush(cx);
            if polled.is_ready() {
                return polled;
            }
            if let Poll::Ready(Err(_)) = flushed {
                return Poll::Ready(Over::Failed);
            }
            if session.ended_by_excess() {
                self.site.shed.note(|shed| shed.abusive += 1);
                continue;
            }
            let must_go = session.idle.is_some() && self.slot.must_go();
            if session.leaving.is_none() && (must_go || drained.as_mut().poll(cx).is_ready()) {
                session.leave();
                continue;
            }
            self.slot.wake(cx);
            let Some(next) = session.deadline(limits) else {
                return Poll::Pending;
            };
            let Poll::Ready(()) = self.poll_until(cx, next) else {
                return Poll::Pending;
            };
            match session.late(limits, asked) {
                Late::Over(over) => return Poll::Ready(over),
                Late::Leave => session.leave(),
                Late::NotYet if std::mem::replace(&mut asked, true) => session.output.probe.set(None),
                Late::NotYet => {}
            }
        }
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, next: Instant) -> Poll<()> {
        if expired(cx, &mut self.timer, next) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Takes new requests, and lets go of those that are answered.
    fn poll_streams(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<Over> {
        loop {
            match session.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    if session.idle.take().is_some() {
                        self.slot.mark_busy();
                    }
                    let task =
                        stream::answer(self.site.clone(), self.conn, session.shown.clone(), request, respond);
                    session.tasks.spawn_local(task);
                }
                Poll::Ready(Some(Err(error))) => {
                    let calm = error.reason() == Some(Reason::ENHANCE_YOUR_CALM) && !error.is_remote();
                    if calm && !session.abusive {
                        self.site.shed.note(|shed| shed.abusive += 1);
                    }
                    // Either side's word that this is the end is one, whatever the reason.
                    let told = error.is_go_away() && !calm;
                    return Poll::Ready(if told { Over::Told } else { Over::Failed });
                }
                Poll::Ready(None) => {
                    return Poll::Ready(if session.abusive { Over::Done } else { Over::Told });
                }
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(_)) = Pin::new(&mut session.tasks).poll_join_next(cx) {}
        if session.tasks.is_empty() && session.idle.is_none() {
            session.idle = Some(Instant::now());
            self.slot.mark_idle();
        }
        Poll::Pending
    }
}

/// What is to be done when a deadline has passed.
enum Late {
    NotYet,
    Leave,
    Over(Over),
}

impl Session {
    /// Tells a client that has done too much, once.
    fn ended_by_excess(&mut self) -> bool {
        if self.abusive || self.counters.excess.get().is_none() {
            return false;
        }
        self.abusive = true;
        self.leaving = Some(Instant::now());
        // What they were for is of no use to such a client.
        self.tasks.abort_all();
        self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        true
    }

    /// Tells the client to open no more streams.
    fn leave(&mut self) {
        self.leaving = Some(Instant::now());
        self.connection.graceful_shutdown();
    }

    /// When something is late, if nothing happens before.
    fn deadline(&self, limits: &Limits) -> Option<Instant> {
        [self.end(limits), self.output.next_look()].into_iter().flatten().min()
    }

    /// When an idle connection ends.
    fn end(&self, limits: &Limits) -> Option<Instant> {
        match (self.leaving, self.idle) {
            (Some(leaving), _) if self.abusive => Some(leaving + LAST_WORD),
            (Some(leaving), Some(idle)) => Some(leaving.max(idle) + LAST_WORD),
            (None, Some(idle)) => Some(idle + limits.idle_timeout),
            (_, None) => None,
        }
    }

    fn late(&self, limits: &Limits, asked: bool) -> Late {
        let now = Instant::now();
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if asked && passed(self.output.takes.deadline()) {
            return Late::Over(Over::Slow);
        }
        match passed(self.end(limits)) {
            true if self.abusive => Late::Over(Over::Failed),
            true if self.leaving.is_some() => Late::Over(Over::Done),
            true => Late::Leave,
            false => Late::NotYet,
        }
    }
}

//! A connection that speaks HTTP/2: what is in the cache is answered at once, every other stream by a task of its own.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: all bytes of the connection; the crate `http2`
//! reads them. Must never: wait for a client without a deadline, or let one connection hold more than its limits.

mod cached;
mod io;
mod request;
mod stream;
mod tunnel;
pub(crate) mod upload;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::http2::{self as codec, Http2Head, Reason, ReceiveResult, SharedConnection};
use http::HeaderValue;
use tokio::task::JoinSet;
use wire::FromWorker;

use self::cached::Fast;
use self::io::SocketIo;
use self::stream::StreamRequest;
use crate::config::limits::ClientLimits;
use crate::connection::output::SendBuffer;
use crate::connection::socket::{ConnectionSocket, expired};
use crate::connection::state::{ClientConnection, NextStep};
use crate::connection::turn;
use crate::tls::stream::STEP_BYTES;

/// LIMIT: requests at once, on one connection: what browsers expect (RFC 9113 6.5.2 recommends at least 100).
const STREAMS_MAX: u32 = 128;
/// LIMIT: bytes of a body that may wait here for whoever wants them, of one stream and of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// LIMIT: bytes of an answer that may wait for the socket, of one stream; of all of them, 4 MiB.
const SEND_BYTES: usize = 32 << 10;
/// LIMIT: what is taken of a connection before others have their turn: 1000 frames, or 256 KiB, or 60 requests. A read
/// costs as much as so many frames, as all that came with it was decrypted.
const TURN_COST: u32 = 1024;
const READS_MAX: u32 = 8;
/// LIMIT: streams that we reset for errors of the client's in the life of a connection; others are counted by the time.
const PROVOKED_MAX: usize = 1000;
/// LIMIT: after the last word, so long does the client have to take it.
const LAST_WORD: Duration = Duration::from_secs(2);
/// LIMIT: while so many bytes wait for the socket, nothing is read.
const UNSENT_BYTES: usize = 96 << 10;

thread_local! {
    /// For the head of a request; a worker has one thread.
    static HEAD: RefCell<Http2Head> = RefCell::default();
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
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
struct Http2Session {
    shared: SharedConnection,
    wire: SocketIo,
    /// Those that answer, if there are any.
    tasks: Option<Box<JoinSet<()>>>,
    /// Since when no request is being answered.
    idle: Option<Instant>,
    /// Since when the client knows that it is to go.
    leaving: Option<Instant>,
    abusive: bool,
    /// Whether nobody has had the connection before who could have said something in the client's place.
    is_all_the_clients: bool,
    /// The certificate that the client has shown.
    shown: Option<HeaderValue>,
}

fn limits_of(limits: &ClientLimits) -> codec::StreamLimits {
    codec::StreamLimits {
        streams: STREAMS_MAX,
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        list_bytes: u32::try_from(limits.head_bytes).unwrap_or(u32::MAX),
        send_bytes: SEND_BYTES,
        provoked: PROVOKED_MAX,
        turn: TURN_COST,
    }
}

impl ClientConnection<'_> {
    /// Speaks HTTP/2 until one of the two has had enough.
    pub(crate) async fn http2(&mut self, mut drained: Pin<&mut impl Future<Output = ()>>) -> NextStep {
        let Some(stream) = self.lend() else {
            return NextStep::Close;
        };
        let limits = self.site.worker.limits();
        let shown = stream.client_certificate();
        let output = Rc::new(SendBuffer::new(self.takes()));
        let is_all_the_clients = self.preread.is_empty();
        let wire = SocketIo { stream, output, preread: std::mem::take(&mut self.preread) };
        let mut session = Box::new(Http2Session {
            shared: Rc::new(RefCell::new(codec::Connection::new(limits_of(limits)))),
            wire,
            tasks: None,
            idle: Some(Instant::now()),
            leaving: None,
            abusive: false,
            is_all_the_clients,
            shown,
        });
        // By itself, as an idle connection would keep the room for it.
        let over = match Box::pin(self.begin(&mut session, limits)).await {
            false => SessionEnd::Failed,
            true => {
                if session.idle.is_some() {
                    self.slot.mark_idle();
                }
                let over = poll_fn(|cx| self.poll_session(cx, &mut session, drained.as_mut(), limits)).await;
                self.slot.mark_busy();
                over
            }
        };
        match over {
            SessionEnd::Told | SessionEnd::Done | SessionEnd::Failed => {}
            SessionEnd::Slow => self.site.shed.note(|shed| shed.slow_response += 1),
        }
        let stream =
            Some(session.wire.stream).filter(|_| matches!(over, SessionEnd::Told | SessionEnd::Done));
        self.socket = stream.map(ConnectionSocket::Registered);
        if over == SessionEnd::Told {
            // A client that says goodbye may have sent more frames after it, and shall still get what it was sent
            // before.
            self.linger().await;
        }
        NextStep::Close
    }

    /// Waits for the preface and the first settings; false if they are wrong, or late.
    async fn begin(&mut self, session: &mut Http2Session, limits: &ClientLimits) -> bool {
        let begun = poll_fn(|cx| match self.poll_streams(cx, session) {
            Poll::Ready(over) => Poll::Ready(Some(over)),
            Poll::Pending if session.shared.borrow().has_begun() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let begun = tokio::time::timeout(limits.head_timeout, begun).await;
        match begun {
            Err(_) => self.site.shed.note(|shed| shed.late_head += 1),
            Ok(Some(_)) if !session.shared.borrow().has_begun() => {
                self.site.shed.note(|shed| shed.malformed += 1);
            }
            // A second poll reports the end again.
            Ok(_) => return true,
        }
        false
    }

    fn poll_session(
        &mut self,
        cx: &mut Context<'_>,
        session: &mut Http2Session,
        mut drained: Pin<&mut impl Future<Output = ()>>,
        limits: &ClientLimits,
    ) -> Poll<SessionEnd> {
        let mut asked = false;
        loop {
            if let Poll::Ready(over) = self.poll_streams(cx, session) {
                return Poll::Ready(over);
            }
            if session.ended_by_excess() {
                self.site.shed.note(|shed| shed.abusive += 1);
                // SECURITY: bytes that came along may be those of another site's worker that was taken over.
                if session.is_all_the_clients {
                    let (address_high, address_low) = wire::halves(self.conn.peer.ip());
                    let offence = FromWorker::Offence { address_high, address_low };
                    self.site.worker.receiver.notify_gates(&offence);
                }
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
                DeadlineAction::Over(over) => return Poll::Ready(over),
                DeadlineAction::Leave => session.leave(),
                DeadlineAction::NotYet if std::mem::replace(&mut asked, true) => {
                    session.wire.output.probe.set(None)
                }
                DeadlineAction::NotYet => {}
            }
        }
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, next: Instant) -> Poll<()> {
        if expired(cx, &mut self.timer, next) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Takes what has come, sends what there is, and lets go of the tasks that have answered.
    fn poll_streams(&mut self, cx: &mut Context<'_>, session: &mut Http2Session) -> Poll<SessionEnd> {
        io::swap_buffer(&mut session.shared.borrow_mut());
        let polled = self.poll_wire(cx, session);
        io::swap_buffer(&mut session.shared.borrow_mut());
        if polled.is_ready() {
            return polled;
        }
        if let Some(tasks) = &mut session.tasks {
            while let Poll::Ready(Some(_)) = Pin::new(&mut **tasks).poll_join_next(cx) {}
            if tasks.is_empty() {
                session.tasks = None;
                session.shared.borrow_mut().shrink();
            }
        }
        if session.tasks.is_none() && session.idle.is_none() {
            session.idle = Some(Instant::now());
            self.slot.mark_idle();
        }
        Poll::Pending
    }

    fn poll_wire(&mut self, cx: &mut Context<'_>, session: &mut Http2Session) -> Poll<SessionEnd> {
        session.shared.borrow_mut().set_waker(cx);
        session.shared.borrow_mut().begin_turn();
        let mut reads = READS_MAX;
        loop {
            let is_taken = match self.poll_receive(cx, session, &mut reads) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(over)) => return Poll::Ready(over),
                Poll::Pending => false,
            };
            let mut connection = session.shared.borrow_mut();
            match session.wire.poll_write(cx, &mut connection) {
                Poll::Ready(Ok(())) if connection.is_over() => {
                    return Poll::Ready(if session.abusive { SessionEnd::Done } else { SessionEnd::Told });
                }
                // There is room for more.
                Poll::Ready(Ok(())) if is_taken => {}
                Poll::Ready(Err(_)) => return Poll::Ready(SessionEnd::Failed),
                _ => return Poll::Pending,
            }
        }
    }

    /// Takes what has come; ready when there is more, for which there must be room first, or at the end.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        session: &mut Http2Session,
        reads: &mut u32,
    ) -> Poll<Result<(), SessionEnd>> {
        let site = self.site;
        let mut scratch = site.scratch.borrow_mut();
        loop {
            let connection = session.shared.borrow();
            if connection.is_over() || connection.excess().is_some() {
                return Poll::Pending;
            }
            if connection.output().len() >= UNSENT_BYTES {
                return Poll::Ready(Ok(()));
            }
            drop(connection);
            let Some(fewer) = reads.checked_sub(1) else { return turn::end(cx) };
            *reads = fewer;
            match session.wire.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => {
                    let left = self.take(cx, session, &scratch[..count]);
                    if left > 0 {
                        session.wire.unread(&scratch[count - left..count]);
                        return turn::end(cx);
                    }
                }
                Poll::Ready(end) => {
                    let is_clean = end.is_ok() && !session.shared.borrow().is_interrupted();
                    return Poll::Ready(Err(if is_clean { SessionEnd::Told } else { SessionEnd::Failed }));
                }
            }
        }
    }

    /// Has the requests in `bytes` answered; how many bytes are left for another turn.
    fn take(&mut self, cx: &mut Context<'_>, session: &mut Http2Session, mut bytes: &[u8]) -> usize {
        let now = Instant::now();
        HEAD.with_borrow_mut(|head| {
            loop {
                let received = session.shared.borrow_mut().receive(&mut bytes, head, now);
                match received {
                    ReceiveResult::Request => {}
                    ReceiveResult::Enough => return bytes.len(),
                    ReceiveResult::Nothing | ReceiveResult::Over => return 0,
                }
                self.request(session, head, now);
                let mut connection = session.shared.borrow_mut();
                if connection.output().len() >= STEP_BYTES {
                    // A second write reports the failure again.
                    let _ = session.wire.poll_write(cx, &mut connection);
                }
            }
        })
    }

    /// Answers a request at once, or has it answered.
    fn request(&mut self, session: &mut Http2Session, head: &Http2Head, now: Instant) {
        let mut connection = session.shared.borrow_mut();
        let allowed = match cached::answer(self.site, &self.conn, &mut connection, head, now) {
            Fast::Answered => {
                session.idle = session.idle.map(|_| now);
                return;
            }
            Fast::General(allowed) => allowed,
        };
        let Some(parts) = head.parts() else {
            return connection.refuse_malformed(head, now);
        };
        drop(connection);
        if session.idle.take().is_some() {
            self.slot.mark_busy();
        }
        let stream = codec::Stream::open(&session.shared, head);
        let asked = StreamRequest { parts, stream, shown: session.shown.clone(), allowed };
        let task = stream::answer(self.site.clone(), self.conn, asked);
        session.tasks.get_or_insert_default().spawn_local(task);
    }
}

/// The action once a deadline has passed.
enum DeadlineAction {
    NotYet,
    Leave,
    Over(SessionEnd),
}

impl Http2Session {
    /// Tells a client that has done too much, once.
    fn ended_by_excess(&mut self) -> bool {
        if self.abusive || self.shared.borrow().excess().is_none() {
            return false;
        }
        self.abusive = true;
        self.leaving = Some(Instant::now());
        // The answers of these tasks are of no use to such a client.
        if let Some(tasks) = &mut self.tasks {
            tasks.abort_all();
        }
        self.shared.borrow_mut().fail(Reason::ENHANCE_YOUR_CALM);
        true
    }

    /// Tells the client to open no more streams.
    fn leave(&mut self) {
        self.leaving = Some(Instant::now());
        self.shared.borrow_mut().leave();
    }

    /// When something is late, if nothing happens before.
    fn deadline(&self, limits: &ClientLimits) -> Option<Instant> {
        [self.end(limits), self.wire.output.next_look()].into_iter().flatten().min()
    }

    /// When an idle connection ends.
    fn end(&self, limits: &ClientLimits) -> Option<Instant> {
        match (self.leaving, self.idle) {
            (Some(leaving), _) if self.abusive => Some(leaving + LAST_WORD),
            (Some(leaving), Some(idle)) => Some(leaving.max(idle) + LAST_WORD),
            (None, Some(idle)) => Some(idle + limits.idle_timeout),
            (_, None) => None,
        }
    }

    fn late(&self, limits: &ClientLimits, asked: bool) -> DeadlineAction {
        let now = Instant::now();
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if asked && passed(self.wire.output.takes.deadline()) {
            return DeadlineAction::Over(SessionEnd::Slow);
        }
        match passed(self.end(limits)) {
            true if self.abusive => DeadlineAction::Over(SessionEnd::Failed),
            true if self.leaving.is_some() => DeadlineAction::Over(SessionEnd::Done),
            true => DeadlineAction::Leave,
            false => DeadlineAction::NotYet,
        }
    }
}

//! The life of one client connection in the site worker.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: all bytes of the connection. Must never:
//! answer a request that is not the partition's, wait for a client without a deadline, or lose a byte that
//! was read when it hands a connection back.

mod close;
pub(crate) mod direct;
mod handshake;
pub(crate) mod idle_pool;
pub(crate) mod min_rate;
pub(crate) mod output;
mod read;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod turn;
mod write;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use ::http2::PREFACE;
use bytes::Bytes;
use http::StatusCode;
use request::chunks::Chunks;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;

use crate::connection::socket::ConnectionSocket;
pub use crate::connection::state::{AcceptedClient, ConnectionEnd};
use crate::connection::state::{ClientConnection, LastResponse, NextStep, Partial, Sending};
use crate::context::SiteContext;
use crate::context::state::RouteOwner;
use crate::head::{self, CheckedHead, Framing, HeadRefusal, RequestField, RequestHead, Room, Verb};
use crate::http::access_record::LoggedRequest;
use crate::http::conn_info::ConnInfo;
use crate::http1::exchange;
use crate::http1::fast_path::{self, Fast};
use crate::http1::request::ReceivedHead;
use crate::proxy::relay::RelayTarget;
use crate::router::rules::RouteMatch;

/// LIMIT: what the worker that relays a request adds to the head: the client's certificate, of 16 KiB in base64, and
/// how the body comes.
const RELAYED_BYTES: usize = 24 << 10;

/// LIMIT: what of a client's that sends request after request is answered before others have their turn: those that are
/// answered at once, and all others.
const AT_ONCE_MAX: u32 = 64;
const ANSWERS_MAX: u32 = 16;

/// Serves a connection until it ends or is no longer ours. From beginning to end, the same task must poll it.
///
/// Not `async` as a whole, as an idle connection would keep the room for what it was made of.
pub fn serve(site: &Rc<SiteContext>, client: AcceptedClient) -> impl Future<Output = ConnectionEnd> {
    let AcceptedClient { peer, local, relayed, .. } = client;
    let conn = ConnInfo { peer, local, tls: client.tls || relayed.is_some(), relayed };
    let socket = Some(ConnectionSocket::Fresh(client.stream.into()));
    let arrived = Instant::now();
    let slot = site.idle_pool.enter(conn.peer.ip());
    let preread = client.preread;
    let mut connection = ClientConnection {
        site,
        conn,
        socket,
        preread,
        arrived,
        since: arrived,
        timer: None,
        takes: None,
        slot,
        begun: Cell::new(false),
        h2c: client.h2c && !conn.tls,
    };
    async move {
        let mut drained = pin!(unconstrained(connection.site.worker.receiver.drained()));
        let mut next = if client.tls { NextStep::Handshake } else { connection.first() };
        let mut answers = 0;
        loop {
            answers = if matches!(next, NextStep::Read) { 0 } else { answers + 1 };
            if answers == ANSWERS_MAX {
                answers = 0;
                yield_now().await;
            }
            next = match next {
                NextStep::Yield => {
                    yield_now().await;
                    connection.go_on()
                }
                NextStep::Read => connection.wait(drained.as_mut()).await,
                // On the heap, as an idle connection would keep the room for the largest of them.
                NextStep::Write(partial) => Box::pin(connection.finish_write(*partial)).await,
                NextStep::File(sending) => Box::pin(connection.send_file(*sending)).await,
                NextStep::Direct(direct) => connection.direct(direct).await,
                NextStep::General(head) => Box::pin(connection.general(head)).await,
                NextStep::Http2 => Box::pin(connection.http2(drained.as_mut())).await,
                NextStep::Handshake => Box::pin(connection.handshake()).await,
                NextStep::End(last) => Box::pin(connection.end_with(*last)).await,
                NextStep::Leave => {
                    Box::pin(connection.linger()).await;
                    NextStep::Close
                }
                NextStep::Close => return connection.close(),
                NextStep::HandBack => return connection.hand_back(),
            };
        }
    }
}

/// The result of [`ClientConnection::work`].
struct WorkResult {
    /// Bytes used up.
    used: usize,
    answered: bool,
    next: NextStep,
}

/// How the bytes compare with the preface of HTTP/2.
enum Preface {
    Whole,
    Partial,
    Other,
}

impl<'a> ClientConnection<'a> {
    /// The first read is done at once: the gate passes on connections on which a request waits.
    fn first(&mut self) -> NextStep {
        if !self.preread.is_empty() {
            match self.digest_preread() {
                NextStep::Read => {}
                other => return other,
            }
        }
        let site = self.site;
        let mut scratch = site.scratch.borrow_mut();
        let Some(fd) = self.socket.as_ref().and_then(ConnectionSocket::plain) else {
            return NextStep::Close;
        };
        match rustix::net::recv(fd, &mut scratch[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => NextStep::Read,
            Ok((0, _)) | Err(_) => NextStep::Close,
            Ok((count, _)) => self.digest(&scratch[..count]),
        }
    }

    /// Works off newly read bytes together with those left from before.
    fn digest(&mut self, new: &[u8]) -> NextStep {
        if !self.preread.is_empty() {
            let searched = self.preread.len();
            self.preread.extend_from_slice(new);
            let is_partial = self.preread.len() < self.head_bytes();
            if is_partial && !head::may_have_ended(&self.preread, searched) {
                return NextStep::Read;
            }
            return self.digest_preread();
        }
        let worked = self.work(new);
        self.preread.extend_from_slice(&new[worked.used..]);
        if worked.answered || !self.preread.is_empty() {
            self.since = self.arrived;
        }
        worked.next
    }

    /// Works off what has been read; `NextStep::Read` if that needs more.
    fn digest_preread(&mut self) -> NextStep {
        let mut preread = std::mem::take(&mut self.preread);
        let worked = self.work(&preread);
        // An idle connection holds no buffer.
        if worked.used < preread.len() {
            preread.drain(..worked.used);
            self.preread = preread;
        }
        // The time for a head runs from its first byte, however many follow one by one.
        if worked.answered {
            self.since = self.arrived;
        }
        worked.next
    }

    /// Answers all heads in `data` that the fast path can.
    fn work(&mut self, data: &[u8]) -> WorkResult {
        let head_bytes = self.head_bytes();
        let tick = self.site.clock.tick(self.arrived);
        let (mut used, mut answered) = (0, 0);
        let next = loop {
            // RFC 9112 2.2: empty lines before a request line are to be ignored.
            while let [b'\r', b'\n', ..] = &data[used..] {
                used += 2;
            }
            if used == data.len() {
                break NextStep::Read;
            }
            if answered == AT_ONCE_MAX {
                break NextStep::Yield;
            }
            match self.preface(&data[used..]) {
                Preface::Whole => break NextStep::Http2,
                Preface::Partial => break NextStep::Read,
                Preface::Other => {}
            }
            let mut room = Room::default();
            let (mut head, lines) = match head::check_lines(&data[used..], head_bytes, &mut room) {
                (CheckedHead::Whole(head), lines) => (head, lines),
                (CheckedHead::Partial, _) => break NextStep::Read,
                (CheckedHead::Refused(refusal), _) => break self.refusal(refusal, None),
            };
            // Of a connection that nobody else can go on with, the client is told before it ends.
            head.keep &= !self.is_leaving();
            let again = self.begun.replace(true);
            let owner = self.site.worker.owner(&self.conn, head.host, head.path);
            let is_other = owner == RouteOwner::Other;
            if self.conn.tls && is_other {
                break NextStep::End(LastResponse::new(StatusCode::MISDIRECTED_REQUEST, &head));
            }
            if is_other || (again && !self.conn.tls && self.site.worker.filtered) {
                break NextStep::HandBack;
            }
            // A relayed request counts where it is answered, as it does without TLS.
            let relayed = owner.partition();
            if relayed.is_none() && !self.site.worker.allows(&self.conn, self.arrived) {
                break NextStep::End(LastResponse::new(StatusCode::TOO_MANY_REQUESTS, &head));
            }
            let raw = &data[used..used + head.length];
            let next = match relayed {
                Some(_) => Err(None),
                None => self.fast(&head, lines, tick),
            };
            let next = next.or_else(|route| match relayed {
                Some(_) => Err(()),
                None => self.begin_direct(&data[used..], (&head, lines), route).ok_or(()),
            });
            let next = next.unwrap_or_else(|()| self.own(raw, &head, lines, relayed));
            used += head.length;
            if let NextStep::Direct(direct) = &next {
                used += direct.body_bytes;
            }
            answered += 1;
            if !matches!(next, NextStep::Read) {
                break next;
            }
        };
        WorkResult { used, answered: answered > 0, next }
    }

    /// Whether a connection begins with the preface of HTTP/2, in plaintext, where that is allowed.
    fn preface(&self, data: &[u8]) -> Preface {
        if !self.h2c || self.begun.get() {
            return Preface::Other;
        }
        let count = data.len().min(PREFACE.len());
        match data[..count] == PREFACE[..count] {
            true if count == PREFACE.len() => Preface::Whole,
            true => Preface::Partial,
            false => Preface::Other,
        }
    }

    /// How long a head may be. One that is relayed says more than the client has said.
    fn head_bytes(&self) -> usize {
        self.site.worker.limits().head_bytes + self.conn.relayed.map_or(0, |_| RELAYED_BYTES)
    }

    /// Makes a request of a checked head, for the general path.
    fn own(
        &self,
        raw: &[u8],
        head: &RequestHead<'_>,
        lines: &[RequestField<'_>],
        relayed: Option<u16>,
    ) -> NextStep {
        match ReceivedHead::new(raw, head, lines) {
            Ok(mut head) => {
                if let Some(partition) = relayed {
                    head.parts.extensions.insert(RelayTarget::to(partition));
                }
                NextStep::General(head)
            }
            Err(refusal) => self.refusal(refusal, Some(LoggedRequest::new(head, head.minor))),
        }
    }

    /// Answers a request on the fast path; `NextStep::Read` stands for "answered, go on".
    ///
    /// # Errors
    /// It is not for the fast path; what the rules say of its path, if they were asked.
    fn fast(
        &mut self,
        head: &RequestHead<'_>,
        lines: &[RequestField<'_>],
        tick: u64,
    ) -> Result<NextStep, Option<RouteMatch<'a>>> {
        let Some(socket) = &mut self.socket else {
            return Ok(NextStep::Close);
        };
        Ok(match fast_path::answer(self.site, head, lines, socket, tick) {
            Fast::General(route) => return Err(route),
            Fast::Refused(refusal) => self.refusal(refusal, Some(LoggedRequest::new(head, head.minor))),
            Fast::Broken => NextStep::Close,
            Fast::File { head: lead, file } => NextStep::File(Box::new(Sending {
                lead,
                size: if head.verb == Verb::Head { 0 } else { file.version.size },
                file,
                logged: LoggedRequest::new(head, head.minor),
                keep: head.keep,
            })),
            Fast::Sent { status, body_bytes, rest: None } => {
                self.record(head, status, body_bytes);
                if head.keep { NextStep::Read } else { NextStep::Close }
            }
            Fast::Sent { status, body_bytes, rest: Some(rest) } => {
                let logged = LoggedRequest::new(head, head.minor);
                let partial = Partial { rest, logged, status, body_bytes, keep: head.keep };
                NextStep::Write(Box::new(partial))
            }
        })
    }

    /// After an answer that took its time: the next request.
    pub(crate) fn go_on(&mut self) -> NextStep {
        self.arrived = Instant::now();
        self.since = self.arrived;
        if self.preread.is_empty() { NextStep::Read } else { self.digest_preread() }
    }

    /// Answers a request on the general path; its body is still to come, or begins `preread`.
    async fn general(&mut self, head: Box<ReceivedHead>) -> NextStep {
        // The part of a body that has come is checked before the backend is asked, which might answer without reading
        // it.
        if head.framing == Framing::Chunked
            && let Err(malformed) = Chunks::default().look(&self.preread)
        {
            return self.refusal(HeadRefusal::Malformed(malformed.0), Some(head.logged));
        }
        let Some(stream) = self.lend() else {
            return NextStep::Close;
        };
        let preread = Bytes::from(std::mem::take(&mut self.preread));
        let takes = self.takes();
        let (over, logged) = exchange(self.site, stream, self.conn, takes, head, preread).await;
        if !over.logged_there {
            self.record_later(Some(&logged), over.status, over.body_bytes);
        }
        self.socket = over.stream.map(ConnectionSocket::Registered);
        if over.keep {
            self.preread = over.preread.into();
            return self.go_on();
        }
        if over.linger {
            self.linger().await;
        }
        NextStep::Close
    }
}

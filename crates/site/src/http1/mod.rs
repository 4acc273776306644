//! The general path: one request at a time through hyper.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the checked head, the body of the
//! request, the answers of services. Must never: let hyper see a byte beyond the request, or keep a
//! connection on which it is not certain where the next request begins.

pub mod fast_path;
pub(crate) mod io;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use request::chunks::Chunks;
use tokio::time::Sleep;

use crate::connection::min_rate::Pace;
use crate::connection::socket::expired;
use crate::connection::stream::Stream;
use crate::context::{Site, Waits};
use crate::head::{self, Framing, HEADER_LINES_MAX, Head};
use crate::http::body::{BoundedBody, BoxError, Intake, ResponseBody};
use crate::http::conn_info::{ClientCertificate, ConnInfo};
use crate::http::finish::Codec;
use crate::http::websocket;
use crate::http1::io::{ExchangeState, Left, SingleRequestIo};
use crate::proxy::limit::Side;
use crate::router;

/// What is written to the log for a client that went away before its answer began, as nginx does.
pub(crate) const CLIENT_GONE: u16 = 499;

/// LIMIT: how long a client that has gone behind bytes that nobody takes, of its body or of a next request, is not
/// missed: the runtime wakes nobody for an end behind them.
const GONE_LOOK: Duration = Duration::from_secs(1);

/// What became of a request.
pub(crate) struct Over {
    /// The connection, if it is still good for anything.
    pub stream: Option<Stream>,
    /// Bytes read beyond the request.
    pub preread: Bytes,
    /// Whether the next request may follow; otherwise the connection is to be closed.
    pub keep: bool,
    /// Whether the client may still be sending, so that closing at once could destroy the answer.
    pub linger: bool,
    /// The status code.
    pub status: u16,
    /// Bytes of the answer's body.
    pub body_bytes: u64,
}

/// Answers the request whose head `head` was checked from `raw`, followed by `preread`.
pub(crate) async fn exchange(
    site: &Rc<Site>,
    stream: Stream,
    conn: ConnInfo,
    takes: Rc<Pace>,
    raw: &[u8],
    head: &Head<'_>,
    preread: Bytes,
) -> Over {
    let state = Rc::new(ExchangeState::new(site.worker.limits(), takes));
    let shown = stream.client_certificate().map(ClientCertificate);
    let stream = Rc::new(RefCell::new(stream));
    let left = match head.framing {
        Framing::None => Left::Exactly(0),
        Framing::Length(length) => Left::Exactly(length),
        Framing::Chunked => Left::Chunked(Chunks::default()),
    };
    let io = SingleRequestIo {
        stream: stream.clone(),
        state: state.clone(),
        head: head::rewrite(raw, head).into(),
        preread,
        left,
    };
    let keep = head.keep && head.framing != Framing::Chunked;
    let codec = if head.minor == 0 && keep { Codec::Http1KeepAlive } else { Codec::Http1 };
    let websocket = websocket::names_websocket(head);
    let service = {
        let (site, state) = (site.clone(), state.clone());
        hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let (site, state) = (site.clone(), state.clone());
            if let Some(shown) = &shown {
                request.extensions_mut().insert(shown.clone());
            }
            let refused = websocket.then(|| websocket::take_up(&mut request)).flatten();
            async move { Ok::<_, Infallible>(respond(&site, &state, conn, request, refused, codec).await) }
        })
    };
    let mut connection = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .keep_alive(keep)
        .header_read_timeout(None)
        .max_headers(HEADER_LINES_MAX + 1)
        .serve_connection(io, service);
    let watch = Watch::of(site.waits_for(head.path));
    let outcome = drive(&mut connection, &stream, &state, watch).await;
    match outcome {
        Outcome::Slow => site.shed.note(|shed| shed.slow_response += 1),
        _ if state.intake.get() == Intake::Slow => site.shed.note(|shed| shed.slow_body += 1),
        _ => {}
    }
    let io = connection.into_parts().io;
    if state.broke.get() && head.minor == 0 {
        io.stream.borrow_mut().reset();
    }
    let over = conclude(io, stream, &state, (outcome, keep));
    match state.tunnel.take() {
        Some(opened) => pass_through(over, opened, site.worker.limits().idle_timeout).await,
        None => over,
    }
}

/// What is left of the connection after an exchange; `keep` says whether the request lets another one follow.
fn conclude(
    io: SingleRequestIo,
    stream: Rc<RefCell<Stream>>,
    state: &ExchangeState,
    (outcome, keep): (Outcome, bool),
) -> Over {
    let complete = io.complete();
    let SingleRequestIo { preread, stream: lent, .. } = io;
    drop(lent);
    let status = match state.status.get() {
        0 => CLIENT_GONE,
        status => status,
    };
    // INVARIANT: the connection and its adapter are gone, so nobody else holds the stream.
    let stream = Rc::into_inner(stream).map(RefCell::into_inner);
    Over {
        stream: stream.filter(|_| outcome == Outcome::Answered),
        preread,
        keep: keep && outcome == Outcome::Answered && state.finished.get() && complete,
        linger: !complete,
        status,
        body_bytes: state.body_bytes.get().min(state.written.get()),
    }
}

/// After an answer that makes a tunnel of the connection: all that goes through it, which counts as the body.
async fn pass_through(over: Over, opened: websocket::Opened, idle: Duration) -> Over {
    let Over { stream: Some(stream), preread, .. } = over else {
        return over;
    };
    let count = Cell::new(0);
    // Whether it ended well or broke: the connection is closed.
    let _ = websocket::tunnel(stream, preread, opened, idle, &count).await;
    Over { stream: None, preread: Bytes::new(), keep: false, linger: false, body_bytes: count.get(), ..over }
}

/// How long it matters that a client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// Until its answer is over: somebody else works on that.
    ToTheEnd,
    /// Until its answer begins.
    UntilAnswered,
    /// Not at all.
    Never,
}

impl Watch {
    /// A client that stops sending may still be reading, so only what others work on is given up for it.
    fn of(waits: Waits) -> Self {
        match waits {
            Waits::Backend => Watch::ToTheEnd,
            Waits::Password => Watch::UntilAnswered,
            Waits::Never => Watch::Never,
        }
    }

    fn is_on(self, state: &ExchangeState) -> bool {
        match self {
            Watch::ToTheEnd => true,
            Watch::UntilAnswered => state.status.get() == 0,
            Watch::Never => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    Broken,
    /// The client took the answer too slowly.
    Slow,
}

/// Polls hyper until it is done, or the client is gone or too slow.
async fn drive<C>(
    connection: &mut C,
    stream: &RefCell<Stream>,
    state: &ExchangeState,
    watch: Watch,
) -> Outcome
where
    C: Future<Output = hyper::Result<()>> + Unpin,
{
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let mut visible = true;
    poll_fn(|cx| {
        let mut asked = false;
        loop {
            if let Poll::Ready(result) = Pin::new(&mut *connection).poll(cx) {
                return Poll::Ready(if result.is_ok() { Outcome::Answered } else { Outcome::Broken });
            }
            if watch.is_on(state) && is_gone(cx, &mut stream.borrow_mut(), state, &mut visible) {
                return Poll::Ready(Outcome::Broken);
            }
            let stall = state.stall.borrow();
            if stall.as_ref().is_some_and(|stall| stall.poll_given_up(cx, Side::Answer).is_ready()) {
                return Poll::Ready(Outcome::Slow);
            }
            drop(stall);
            let Some(next) = next_look(state, watch, visible) else {
                return Poll::Pending;
            };
            if !expired(cx, &mut timer, next) {
                return Poll::Pending;
            }
            if let Some(outcome) = too_slow(state, asked) {
                return Poll::Ready(outcome);
            }
            if std::mem::replace(&mut asked, true) {
                // hyper has nothing to write after all.
                state.probe.set(None);
            }
        }
    })
    .await
}

/// Whether the client has gone. What has come and is not read hides its end: of its body, or a next request, which makes
/// that not `visible` any more.
fn is_gone(cx: &mut Context<'_>, stream: &mut Stream, state: &ExchangeState, visible: &mut bool) -> bool {
    if !state.delivered.get() || !*visible {
        return stream.is_closed();
    }
    stream.poll_gone(cx, visible)
}

/// When to look next whether the client is too slow, or has gone behind what nobody takes. A body that nobody wants any
/// more may stay away.
fn next_look(state: &ExchangeState, watch: Watch, visible: bool) -> Option<Instant> {
    let hidden = !state.delivered.get() || !visible;
    let gone = (watch.is_on(state) && hidden).then(|| Instant::now() + GONE_LOOK);
    let body = state.sends.deadline().filter(|_| state.intake.get() == Intake::Open);
    let response = state.takes.deadline().map(|at| state.probe.get().map_or(at, |probe| at.min(probe)));
    [gone, body, response].into_iter().flatten().min()
}

/// Gives up a client that is too slow, one that takes an answer not before the kernel was `asked` once more. If its
/// answer has not begun, it gets one: the body ends with an error then.
fn too_slow(state: &ExchangeState, asked: bool) -> Option<Outcome> {
    let passed = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= Instant::now());
    if asked && passed(state.takes.deadline()) {
        return Some(Outcome::Slow);
    }
    if state.intake.get() == Intake::Open && passed(state.sends.deadline()) {
        state.intake.set(Intake::Slow);
        return (state.status.get() != 0).then_some(Outcome::Broken);
    }
    None
}

async fn respond(
    site: &Site,
    state: &Rc<ExchangeState>,
    conn: ConnInfo,
    request: Request<Incoming>,
    refused: Option<StatusCode>,
    codec: Codec,
) -> Response<Counted> {
    let limit = site.worker.limits().body_bytes;
    let (parts, body) = request.into_parts();
    let intake = &state.intake;
    let body = BoundedBody::new(body, limit, intake.clone());
    let response = match refused {
        Some(status) => websocket::refusal(status),
        None => router::respond(site, conn, Request::from_parts(parts, body)).await,
    };
    let mut response = site.finish(conn, codec, intake.get(), response);
    state.status.set(response.status().as_u16());
    *state.tunnel.borrow_mut() = websocket::opened(&response);
    *state.stall.borrow_mut() = response.extensions_mut().remove();
    response.map(|inner| Counted { inner, state: state.clone(), error: None })
}

/// A response body that counts.
struct Counted {
    inner: ResponseBody,
    state: Rc<ExchangeState>,
    /// Why the body has broken off; hyper is told when it has written what came before.
    error: Option<BoxError>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Some(error) = this.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = polled {
            this.state.broke.set(true);
            this.error = Some(error);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            this.state.body_bytes.set(this.state.body_bytes.get() + length);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

//! One request of an HTTP/2 connection, from its head to the last byte of its answer.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the request, the answers of services. Must never:
//! answer a request that is not the partition's, or wait for a client that takes nothing.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use ::http2::{Reason, Stream};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body;
use tokio::time::timeout_at;

use super::upload::{self, Http2Upload, Receiving};
use super::{cached, request, tunnel};
use crate::connection::min_rate::TransferPace;
use crate::context::SiteContext;
use crate::context::state::RouteOwner;
use crate::files::cache::Representation;
use crate::head::{Framing, HeadRefusal, RequestHead};
use crate::http::access_record::{AccessRecord, LoggedRequest};
use crate::http::body::{BoundedBody, Intake, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::finish::Codec;
use crate::http::request::CheckedRequest;
use crate::http::response;
use crate::http::websocket;
use crate::http1::CLIENT_GONE;
use crate::http1::fast_path;
use crate::proxy::headers::clean_trailers;
use crate::proxy::limit::{Side, Stall};
use crate::proxy::relay::RelayTarget;
use crate::router;

/// LIMIT: bytes of a file read for one stream at once; a connection has many.
const FILE_STEP_BYTES: usize = 32 << 10;

/// A request that is being answered; when it is over, however it ends, the log is told.
struct Ticket {
    site: Rc<SiteContext>,
    conn: ConnInfo,
    /// The request as the log names it; `None` if it was refused for its head.
    logged: Option<LoggedRequest>,
    began: Instant,
    status: Cell<u16>,
    body_bytes: Cell<u64>,
    /// Where another site answers.
    relayed: Option<RelayTarget>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.relayed.as_ref().is_some_and(RelayTarget::is_logged) {
            return;
        }
        let (status, body_bytes) = (self.status.get(), self.body_bytes.get());
        let access =
            AccessRecord { minor: 2, ..AccessRecord::refused(&self.conn, status, body_bytes, self.began) };
        self.site.worker.record(&match &self.logged {
            None => access,
            Some(logged) => logged.describe(access),
        });
    }
}

/// Why a stream came to no good end.
enum Broken {
    /// The client has reset it, or is gone.
    Gone,
    /// The client takes too little of the answer.
    Slow,
    /// The backend broke off.
    Source,
    /// A side of a tunnel broke off, or neither says anything.
    Tunnel,
}

/// A request on its stream.
pub(super) struct StreamRequest {
    pub parts: Parts,
    pub stream: Stream,
    /// The certificate that the client has shown.
    pub shown: Option<HeaderValue>,
    /// Whether the client may make it, if that was asked already: then the request is counted.
    pub allowed: Option<bool>,
}

/// Answers a request.
pub(super) async fn answer(site: Rc<SiteContext>, conn: ConnInfo, asked: StreamRequest) {
    let StreamRequest { mut parts, stream, shown, allowed } = asked;
    let body: Receiving = Rc::new(stream);
    let settled =
        tunnel::as_get(&mut parts).and_then(|()| request::settle(&mut parts).map_err(HeadRefusal::status));
    let head = settled.and_then(|()| request::check(&parts).map_err(HeadRefusal::status));
    let owner_of = |head: &RequestHead<'_>| site.worker.owner(&conn, head.host, head.path);
    let owner = head.as_ref().map_or(RouteOwner::Other, owner_of);
    let relayed = owner.partition().map(RelayTarget::to);
    let ticket = Ticket {
        site: site.clone(),
        conn,
        began: Instant::now(),
        status: Cell::new(CLIENT_GONE),
        body_bytes: Cell::new(0),
        logged: head.as_ref().ok().map(|head| LoggedRequest::new(head, 2)),
        relayed: relayed.clone(),
    };
    let silent = parts.method == Method::HEAD;
    let Ok(_permit) = site.worker.admit_stream(conn) else {
        return refuse(&site, conn, &ticket, &body);
    };
    let asked = websocket::asked(&parts.extensions);
    // Also what is wrong is counted: it costs no less, and unlike with HTTP/1.1 the connection goes on.
    // A relayed request counts where it is answered, as it does without TLS.
    let allows = || site.worker.allows(&conn, ticket.began);
    let admitted = match (relayed.is_some() || allowed.unwrap_or_else(allows), head) {
        (false, _) => Err(StatusCode::TOO_MANY_REQUESTS),
        (true, Err(status)) => Err(status),
        (true, Ok(head)) => admit(&site, &head, &parts, owner),
    };
    if let Some(relayed) = relayed {
        parts.extensions.insert(relayed);
    }
    let from = From { conn, shown, stream: body.clone() };
    let response = match admitted {
        Ok(admitted) => produce(&site, from, admitted, parts).await,
        Err(status) => {
            if !matches!(status, StatusCode::MISDIRECTED_REQUEST | StatusCode::TOO_MANY_REQUESTS) {
                site.shed.note(|shed| shed.malformed += 1);
            }
            Some((websocket::refusal(status), Intake::Done))
        }
    };
    // The client has gone: nobody is left to be told.
    let Some((mut response, intake)) = response else { return };
    let opened = asked.and_then(|_| tunnel::settle(&mut response));
    // RFC 9110 9.3.6: what is sent on a tunnel has no length.
    let response = finish(&site, conn, silent || opened.is_some(), (response, intake));
    ticket.status.set(response.status().as_u16());
    let sent = match opened {
        None => send(&site, &body, response, silent, &ticket.body_bytes).await,
        // By itself, as what is rare: otherwise each stream would be as large.
        Some(opened) => Box::pin(tunnel::pass(&site, &body, response, opened, &ticket.body_bytes))
            .await
            .map_err(|_| Broken::Tunnel),
    };
    match sent {
        Ok(()) if body.is_end_stream() => {}
        Ok(()) => {
            // The answer is over, and is logged. The rest is rare: it gets its room only if it is needed.
            drop(ticket);
            Box::pin(upload::discard(&body)).await;
        }
        Err(broken) => end_broken(&site, &body, broken),
    }
}

/// Ends a stream whose answer has not come to its end.
fn end_broken(site: &SiteContext, stream: &Stream, broken: Broken) {
    match broken {
        Broken::Gone => {}
        Broken::Slow => {
            site.shed.note(|shed| shed.slow_response += 1);
            stream.reset(Reason::CANCEL);
        }
        // RFC 8441 5: as a connection is reset.
        Broken::Tunnel => stream.reset(Reason::CANCEL),
        Broken::Source => stream.reset(Reason::INTERNAL_ERROR),
    }
}

/// Answers a request for which there is no place, at once and without a body.
fn refuse(site: &SiteContext, conn: ConnInfo, ticket: &Ticket, stream: &Stream) {
    let refusal = finish(site, conn, true, (response::overloaded(), Intake::Done));
    ticket.status.set(refusal.status().as_u16());
    let _ = stream.send_head(refusal.status(), refusal.headers(), true);
}

/// The checks' findings about a request that they let pass.
struct AdmittedRequest {
    length: Option<u64>,
    expects: bool,
    /// The answer, if it is in the cache, and whether the client has it.
    cached: Option<(Rc<Representation>, bool)>,
}

/// The checks that a request of HTTP/1.1 goes through.
fn admit(
    site: &SiteContext,
    head: &RequestHead<'_>,
    parts: &Parts,
    owner: RouteOwner,
) -> Result<AdmittedRequest, StatusCode> {
    if owner == RouteOwner::Other {
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    let fields = request::fields(parts);
    site.examine(head.method, head.target, fields).map_err(HeadRefusal::status)?;
    let length = match head.framing {
        Framing::Length(length) => Some(length),
        // RFC 9113 8.2.2: the library refuses what would say this.
        Framing::Chunked => return Err(StatusCode::BAD_REQUEST),
        // A body may come all the same.
        Framing::None => None,
    };
    let tick = site.clock.tick(Instant::now());
    let is_own = owner == RouteOwner::Own;
    let cached = if is_own { fast_path::cached(site, head, tick) } else { None };
    Ok(AdmittedRequest { length, expects: head.expects, cached })
}

/// The origin of a request.
struct From {
    conn: ConnInfo,
    /// The certificate that the client has shown.
    shown: Option<HeaderValue>,
    stream: Receiving,
}

/// Has the request answered; nothing if the client has reset it meanwhile.
async fn produce(
    site: &Rc<SiteContext>,
    from: From,
    admitted: AdmittedRequest,
    parts: Parts,
) -> Option<(Response<ResponseBody>, Intake)> {
    let limits = site.worker.limits();
    let From { conn, shown, stream } = from;
    // A body that nobody announced makes it a matter for the others.
    if let (Some((representation, unchanged)), true) = (admitted.cached, stream.is_end_stream()) {
        return Some((cached::response(representation, unchanged), Intake::Done));
    }
    let intake = Rc::new(Cell::new(Intake::default()));
    let expects = Rc::new(Cell::new(admitted.expects));
    let body = match websocket::asked(&parts.extensions) {
        // The bytes that follow are for the tunnel.
        Some(_) => BoundedBody::empty(),
        None => {
            let upload =
                Http2Upload::new(stream.clone(), (admitted.length, expects.clone()), limits, intake.clone());
            BoundedBody::new(upload, limits.body_bytes, intake.clone())
        }
    };
    // By itself, because it is large: otherwise each stream would be as large, whoever answers it.
    let request = CheckedRequest::new(conn, parts, shown, body);
    let mut answering = Box::pin(router::respond(site, request, None));
    let response = poll_fn(|cx| {
        if let Poll::Ready(response) = answering.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        stream.poll_reset(cx).map(|()| None)
    })
    .await?;
    expects.set(false);
    if intake.get() == Intake::Slow {
        site.shed.note(|shed| shed.slow_body += 1);
    }
    Some((response, intake.get()))
}

/// Adds what every response has, and the length of its body.
fn finish(
    site: &SiteContext,
    conn: ConnInfo,
    silent: bool,
    (response, intake): (Response<ResponseBody>, Intake),
) -> Response<ResponseBody> {
    let mut response = site.finish(conn, Codec::Http2, intake, response);
    let size = response.body().size_hint().exact();
    let bodiless =
        response.status() == StatusCode::NO_CONTENT || response.status() == StatusCode::NOT_MODIFIED;
    // A service that was asked by HEAD need not have said how long its body would be.
    let unknown = bodiless || (silent && size == Some(0));
    if let Some(size) = size.filter(|_| !unknown) {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(size.into());
    }
    response
}

/// How long a client that takes an answer is waited for.
struct SendPace {
    pace: TransferPace,
    /// Where its request holds a place that may be taken back.
    stall: Option<Stall>,
}

impl SendPace {
    /// Ready once the place was taken back.
    async fn given_up(&self) {
        match &self.stall {
            Some(stall) => poll_fn(|cx| stall.poll_given_up(cx, Side::Answer)).await,
            None => std::future::pending().await,
        }
    }
}

/// Sends the answer; counts the bytes of its body in `sent`.
async fn send(
    site: &SiteContext,
    stream: &Stream,
    response: Response<ResponseBody>,
    silent: bool,
    sent: &Cell<u64>,
) -> Result<(), Broken> {
    let (mut parts, mut body) = response.into_parts();
    let stall: Option<Stall> = parts.extensions.remove();
    let empty = silent || body.is_end_stream();
    stream.send_head(parts.status, &parts.headers, empty).map_err(|_| Broken::Gone)?;
    if empty {
        return Ok(());
    }
    let limits = site.worker.limits();
    let pace = SendPace { pace: TransferPace::new(limits.response_rate, limits.stall_timeout), stall };
    let ours = body.in_steps_of(FILE_STEP_BYTES as u64);
    let mut body = pin!(body);
    loop {
        // Nothing is read for a client that has no room for any of it, and no more of what is ours than it has room
        // for.
        let room = room(stream, &pace).await?;
        if ours {
            body.in_steps_of(FILE_STEP_BYTES.min(room) as u64);
        }
        let frame = poll_fn(|cx| {
            if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
                return Poll::Ready(Ok(frame));
            }
            stream.poll_reset(cx).map(|()| Err(Broken::Gone))
        });
        let Some(frame) = frame.await? else {
            return stream.send_data(Bytes::new(), true).map_err(|_| Broken::Gone);
        };
        let frame = frame.map_err(|_| Broken::Source)?;
        match frame.into_data() {
            Ok(data) => {
                let last = body.is_end_stream();
                push(stream, &pace, data, last, sent).await?;
                if last {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(mut trailers) = frame.into_trailers() {
                    clean_trailers(&mut trailers);
                    return stream.send_trailers(&trailers).map_err(|_| Broken::Gone);
                }
            }
        }
    }
}

/// Sends `data` as the client's window, and what may wait for the socket, have room.
async fn push(
    stream: &Stream,
    pace: &SendPace,
    mut data: Bytes,
    last: bool,
    sent: &Cell<u64>,
) -> Result<(), Broken> {
    while !data.is_empty() {
        let count = room(stream, pace).await?.min(data.len());
        pace.pace.moved(count);
        let piece = data.split_to(count);
        let end = last && data.is_empty();
        stream.send_data(piece, end).map_err(|_| Broken::Gone)?;
        sent.set(sent.get() + count as u64);
    }
    Ok(())
}

/// Waits until there is room, in the client's window and before the socket; tells for how many bytes.
async fn room(stream: &Stream, pace: &SendPace) -> Result<usize, Broken> {
    let mut room = pin!(poll_fn(|cx| stream.poll_room(cx)));
    let room = match poll_fn(|cx| Poll::Ready(room.as_mut().poll(cx))).await {
        Poll::Ready(room) => room,
        Poll::Pending => {
            pace.pace.wait();
            let deadline = pace.pace.deadline().unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                room = timeout_at(deadline.into(), room) => room.map_err(|_| Broken::Slow)?,
                () = pace.given_up() => return Err(Broken::Slow),
            }
        }
    };
    pace.pace.moved(0);
    room.ok_or(Broken::Gone)
}

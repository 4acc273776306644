//! The general path: one request at a time, by a codec of our own.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the checked head, the body of the request, the
//! responses of backends. Must never: take a byte beyond the request for one of it, or keep a connection on which it is
//! not certain where the next request begins.

pub(crate) mod direct;
pub mod fast_path;
mod outgoing;
pub(crate) mod request;
pub(crate) mod response;
#[cfg(test)]
mod roundtrip;
mod state;
mod upload;
mod watch;
mod writer;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use self::request::ReceivedHead;
use self::response::RequestTraits;
use self::state::{ExchangeIo, ExchangeState};
use self::upload::Http1Upload;
use self::watch::{ExchangeOutcome, WatchUntil, drive};
use self::writer::ResponseWriter;
use crate::connection::min_rate::TransferPace;
use crate::connection::stream::ClientStream;
use crate::context::{SiteContext, WaitReason};
use crate::head::Framing;
use crate::http::access_record::LoggedRequest;
use crate::http::body::{BoundedBody, Intake, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::finish::Codec;
use crate::http::request::CheckedRequest;
use crate::http::response::error;
use crate::http::websocket;
use crate::proxy::relay::RelayTarget;
use crate::router;

/// The logged status of a request whose client went away before the answer began, as in nginx.
pub(crate) const CLIENT_GONE: u16 = 499;

/// The outcome of a request.
pub(crate) struct RequestEnd {
    /// The connection, if it is still good for anything.
    pub stream: Option<ClientStream>,
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
    /// Whether another site, which has answered, has it in its log.
    pub logged_there: bool,
}

/// Answers a request on its connection; `preread` is what was read behind its head.
pub(crate) async fn exchange(
    site: &Rc<SiteContext>,
    stream: ClientStream,
    conn: ConnInfo,
    takes: Rc<TransferPace>,
    head: Box<ReceivedHead>,
    preread: Bytes,
) -> (RequestEnd, LoggedRequest) {
    let relayed = head.parts.extensions.get::<RelayTarget>().cloned();
    let shown = stream.client_certificate();
    let exchange_io = ExchangeIo::new(stream, preread, head.framing);
    let state = Rc::new(ExchangeState::new(exchange_io, site.worker.limits(), takes, head.expects));
    let waits = Cell::new(WaitReason::Never);
    let ReceivedHead { parts, logged, framing, traits, refused, .. } = *head;
    let responding = match refused {
        Some(status) => Err(status),
        None => {
            let request = CheckedRequest::new(conn, parts, shown, body_of(site, &state, framing));
            // Boxed: it is large, and would be moved with all that is around it.
            Ok(Box::pin(router::respond(site, request, Some(&waits))))
        }
    };
    let exchange = pin!(answer(site, &state, &conn, responding, traits));
    let outcome = drive(exchange, &state, || WatchUntil::of(waits.get())).await;
    match outcome {
        ExchangeOutcome::Slow => site.shed.note(|shed| shed.slow_response += 1),
        _ if state.intake.get() == Intake::Slow => site.shed.note(|shed| shed.slow_body += 1),
        _ => {}
    }
    let over = conclude(site, &state, outcome, traits.minor);
    let over = match state.tunnel.take() {
        // Boxed: this case is rare.
        Some(opened) => Box::pin(pass_through(over, opened, site.worker.limits().idle_timeout)).await,
        None => over,
    };
    let logged_there = relayed.is_some_and(|relayed| relayed.is_logged());
    (RequestEnd { logged_there, ..over }, logged)
}

/// The body of a request, as its head has it.
fn body_of(site: &Rc<SiteContext>, state: &Rc<ExchangeState>, framing: Framing) -> BoundedBody {
    match framing {
        Framing::None => BoundedBody::empty(),
        Framing::Length(_) | Framing::Chunked => {
            let upload = Http1Upload::new(site.clone(), state.clone());
            BoundedBody::new(upload, site.worker.limits().body_bytes, state.intake.clone())
        }
    }
}

/// Has the request answered, and sends the response.
async fn answer(
    site: &SiteContext,
    state: &ExchangeState,
    conn: &ConnInfo,
    responding: Result<Pin<Box<impl Future<Output = Response<ResponseBody>>>>, StatusCode>,
    traits: RequestTraits,
) -> io::Result<()> {
    let response = match responding {
        Ok(responding) => responding.await,
        Err(refused) => websocket::refusal(refused),
    };
    let (mut writer, mut body) = begin(site, state, conn, response, traits);
    poll_fn(|cx| writer.poll(cx, state, &mut body)).await?;
    drop(body);
    // A backend may go on to read the request although it has answered.
    poll_fn(|_| state.poll_settled()).await;
    Ok(())
}

/// Begins to send a response. By itself, as a future keeps room for what it has once had.
fn begin(
    site: &SiteContext,
    state: &ExchangeState,
    conn: &ConnInfo,
    response: Response<ResponseBody>,
    traits: RequestTraits,
) -> (ResponseWriter, ResponseBody) {
    let mut response = site.finish(*conn, Codec::Http1, state.intake.get(), only_final(response));
    state.status.set(response.status().as_u16());
    *state.tunnel.borrow_mut() = websocket::opened(&response);
    *state.stall.borrow_mut() = response.extensions_mut().remove();
    let writer = ResponseWriter::new(state, traits, &response);
    (writer, response.into_body())
}

/// `response`, unless it is an interim one, which nobody but a codec may send; one that opens a tunnel is final.
fn only_final(response: Response<ResponseBody>) -> Response<ResponseBody> {
    match response.status().is_informational() && websocket::opened(&response).is_none() {
        true => error(StatusCode::INTERNAL_SERVER_ERROR),
        false => response,
    }
}

/// Decides whether the connection goes on after an exchange.
fn conclude(site: &SiteContext, state: &ExchangeState, outcome: ExchangeOutcome, minor: u8) -> RequestEnd {
    let mut exchange_io = state.end();
    let keep = outcome == ExchangeOutcome::Answered && state.keep.get();
    if let Some(exchange_io) = exchange_io.as_mut() {
        if keep {
            exchange_io.discard(&mut site.scratch.borrow_mut());
        }
        if state.broke.get() && minor == 0 {
            exchange_io.stream.reset();
        }
    }
    let is_complete = exchange_io.as_ref().is_some_and(ExchangeIo::is_complete);
    let (stream, preread) = exchange_io.map(|exchange_io| (exchange_io.stream, exchange_io.preread)).unzip();
    let of_body = state.output.written.get().saturating_sub(state.head_bytes.get());
    RequestEnd {
        stream: stream.filter(|_| outcome == ExchangeOutcome::Answered),
        preread: preread.unwrap_or_default(),
        keep: keep && is_complete,
        linger: !is_complete,
        status: match state.status.get() {
            0 => CLIENT_GONE,
            status => status,
        },
        body_bytes: state.body_bytes.get().min(of_body),
        logged_there: false,
    }
}

/// After an answer that makes a tunnel of the connection: all that goes through it, which counts as the body.
async fn pass_through(over: RequestEnd, opened: websocket::OpenTunnel, idle: Duration) -> RequestEnd {
    let RequestEnd { stream: Some(stream), preread, .. } = over else {
        return over;
    };
    let count = Cell::new(0);
    // Whether it ended well or broke: the connection is closed.
    let _ = websocket::tunnel(stream, preread, opened, idle, &count).await;
    RequestEnd {
        stream: None,
        preread: Bytes::new(),
        keep: false,
        linger: false,
        body_bytes: count.get(),
        ..over
    }
}

#[cfg(test)]
mod tests {
    use super::roundtrip;

    #[test]
    fn responses_are_understood_as_they_were_made() {
        let mut seed = 1_u64;
        for _ in 0..3000 {
            let input: Vec<u8> = (0..60)
                .map(|_| {
                    // Marsaglia, Xorshift RNGs.
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    (seed >> 32) as u8
                })
                .collect();
            roundtrip::check(&input);
        }
    }
}

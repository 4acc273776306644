//! Requests to a backend by HTTP/1.1, on kept connections or new ones, and its responses as they come.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and responses of backends,
//! which may be compromised. Must never: send a request twice that may have had an effect, or take what a backend sends
//! after its response for another one.

use http::{Method, Request, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use request::response_head::ResponseHead;

use super::timeout::{TimedUpload, UploadProgress};
use crate::files::RootFiles;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::error;
use crate::http::websocket::{self, UpgradeRequest};
use crate::proxy::backend::{BackendRequest, HttpBackend, KeepAlive, RequestContext, Responding};
use crate::proxy::direct::ResumedRequest;
use crate::proxy::headers;
use crate::proxy::http1::{self, FinalHead, Http1Failure, Keep, RequestWriter};
use crate::proxy::response::{begun, is_refused};
use crate::proxy::retry::SendAttempt;
use crate::proxy::stream::BackendStream;

/// The differences between services and HTTP upstreams.
pub(crate) trait Peer: KeepAlive {
    /// Whether a connection that is reset tells that its backend has read nothing of the request.
    const RESET_MEANS_UNREAD: bool;

    /// Adds what only this kind of backend hears of a client.
    fn describe(&self, request: &mut Request<BoundedBody>, conn: ConnInfo) {
        let _ = (request, conn);
    }

    /// Makes a connection for a request of `conn`.
    async fn connect(&self, conn: ConnInfo) -> Result<BackendStream, StatusCode>;

    /// A backend has not answered in time on this connection.
    fn fell_silent(&self, stream: &BackendStream) {
        let _ = stream;
    }

    /// How many new connections no backend has taken.
    fn undelivered(&self) -> u64 {
        0
    }
}

impl<P: Peer + 'static> HttpBackend for P {
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a> {
        Box::pin(answer(self, request))
    }

    fn refuses(&self, _: Option<&RootFiles>, _: &str) -> Option<StatusCode> {
        self.refusal()
    }

    fn link(&self) -> Option<&dyn KeepAlive> {
        Some(self)
    }
}

/// Has `peer` answer a request.
async fn answer<P: Peer>(peer: &P, request: BackendRequest<'_>) -> Response<ResponseBody> {
    let BackendRequest { context: RequestContext { conn, .. }, mut request } = request;
    if let Some(status) = peer.refusal() {
        return error(status);
    }
    headers::prepare(&mut request, conn);
    peer.describe(&mut request, conn);
    match exchange(peer, conn, request).await {
        Ok(response) => begun(response).await,
        Err(status) => error(status),
    }
}

async fn exchange<P: Peer>(
    peer: &P,
    conn: ConnInfo,
    request: Request<BoundedBody>,
) -> Result<Response<ResponseBody>, StatusCode> {
    let (mut parts, body) = request.into_parts();
    let resumed = ResumedRequest::take(&mut parts.extensions);
    let progress = resumed.as_ref().map_or_else(UploadProgress::new, |one| UploadProgress::since(one.since));
    let mut attempt = SendAttempt::first(&parts.method, &body, P::RESET_MEANS_UNREAD);
    let (mut outgoing, mut kept) = match resumed {
        Some(one) => (
            RequestWriter::resumed(one.text, one.written, progress.clone()),
            Some((one.stream, one.generation, one.partial, one.failure)),
        ),
        None => (RequestWriter::new(&parts, TimedUpload::new(body, progress.clone())), take_kept(peer)),
    };
    let asked = (parts.method == Method::HEAD, websocket::asked(&parts.extensions));
    drop(parts);
    loop {
        let undelivered = peer.undelivered();
        attempt.is_kept = kept.is_some();
        let (mut stream, generation, partial, failure) = match kept.take() {
            Some(kept) => kept,
            None => {
                let generation = peer.pool().generation();
                let mut stream = peer.connect(conn).await?;
                stream.begin();
                progress.note();
                (stream, generation, Vec::new(), None)
            }
        };
        let sent = match failure {
            Some(failure) => Some(Err(failure)),
            None => {
                let sending = http1::send(&mut stream, &mut outgoing, partial);
                progress.watch(peer.timeouts().answer, sending).await
            }
        };
        let has_sent = stream.has_sent();
        let Some(sent) = sent else {
            peer.fell_silent(&stream);
            return Err(StatusCode::GATEWAY_TIMEOUT);
        };
        let reset = match sent {
            Ok(begun) => {
                if !outgoing.is_written() {
                    // A backend that closes behind an early response has mostly done so by now, and the client can be
                    // told.
                    tokio::task::yield_now().await;
                }
                return received(peer, generation, asked, (stream, outgoing), begun);
            }
            Err(Http1Failure::Client(status)) => return Err(status),
            Err(Http1Failure::Malformed) => return Err(StatusCode::BAD_GATEWAY),
            Err(Http1Failure::Gone { reset }) => reset,
        };
        if !attempt.is_kept && peer.undelivered() > undelivered {
            return Err(peer.refusal().unwrap_or(StatusCode::SERVICE_UNAVAILABLE));
        }
        if !attempt.may_repeat(reset, has_sent) {
            return Err(StatusCode::BAD_GATEWAY);
        }
        outgoing.restart();
        attempt.number += 1;
    }
}

/// A connection that was kept: the generation of its pool, what has come of a response, and how it has failed.
type KeptConnection = (BackendStream, u64, Vec<u8>, Option<Http1Failure>);

fn take_kept<P: Peer>(peer: &P) -> Option<KeptConnection> {
    let generation = peer.pool().generation();
    peer.pool().take().map(|mut stream| {
        stream.begin();
        (stream, generation, Vec::new(), None)
    })
}

/// The response with this head, if it is not refused. Its connection ends with one that is: what is behind that is
/// nobody's.
fn received<P: Peer>(
    peer: &P,
    generation: u64,
    (to_head, asked): (bool, Option<UpgradeRequest>),
    connection: (BackendStream, RequestWriter),
    (head, rest): FinalHead,
) -> Result<Response<ResponseBody>, StatusCode> {
    let keeps = head.keeps() && peer.keeps();
    let mut response = response_of(head);
    if is_refused(&response, asked.as_ref()) {
        return Err(StatusCode::BAD_GATEWAY);
    }
    // RFC 9110 2.5: the version of a message is that of who sends it on.
    *response.version_mut() = Version::HTTP_11;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        websocket::grant(&mut response, connection.0, rest);
        return Ok(response);
    }
    let keep = keeps.then(|| Keep { pool: peer.pool().clone(), generation });
    let silence = peer.timeouts().silence(response.headers());
    *response.body_mut() = http1::receive(connection, &response, to_head, rest, keep, silence);
    Ok(response)
}

fn response_of(head: ResponseHead) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Empty);
    *response.status_mut() = head.status;
    *response.version_mut() = head.version;
    *response.headers_mut() = head.headers;
    let reason = head.reason.and_then(|reason| ReasonPhrase::try_from(reason).ok());
    if let Some(reason) = reason {
        response.extensions_mut().insert(reason);
    }
    response
}

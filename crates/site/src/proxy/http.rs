//! Requests to a backend by HTTP/1.1, on kept connections or new ones, and its responses as they come.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and responses of backends,
//! which may be compromised. Must never: send a request twice that may have had an effect, or take what a backend sends
//! after its response for another one.

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::timeout::{Download, Progress, Timeouts, Upload};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::error;
use crate::http::websocket;
use crate::proxy::backend::{Backend, BackendRequest, Responding};
use crate::proxy::headers;
use crate::proxy::http1_client::Http1Client;
use crate::proxy::pool::Pool;
use crate::proxy::response::{self, fault};
use crate::proxy::retry::{Attempt, copy_of};

/// A connection to a backend.
pub(crate) type Sender = Http1Client<Upload>;

/// What services and HTTP upstreams do differently.
pub(crate) trait Peer {
    /// The connections that are kept.
    fn pool(&self) -> &Pool<Sender>;

    /// How long the backend may take.
    fn timeouts(&self) -> Timeouts;

    /// Whether a connection that is reset tells that its backend has read nothing of the request.
    const RESET_MEANS_UNREAD: bool;

    /// Whether requests are refused at once.
    fn refusal(&self) -> Option<StatusCode> {
        None
    }

    /// Adds what only this kind of backend hears of a client.
    fn describe(&self, request: &mut Request<BoundedBody>, conn: ConnInfo) {
        let _ = (request, conn);
    }

    /// Makes a connection for a request of `conn`.
    async fn connect(&self, conn: ConnInfo) -> Result<Sender, StatusCode>;

    /// How many new connections no backend has taken.
    fn undelivered(&self) -> u64 {
        0
    }

    /// Whether a connection may be kept once its response has been passed on.
    fn keeps(&self) -> bool;
}

impl<P: Peer + 'static> Backend for P {
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a> {
        Box::pin(answer(self, request))
    }
}

/// Has `peer` answer a request.
async fn answer<P: Peer>(peer: &P, request: BackendRequest<'_>) -> Response<ResponseBody> {
    let BackendRequest { conn, mut request, .. } = request;
    if let Some(status) = peer.refusal() {
        return error(status);
    }
    headers::prepare(&mut request, conn);
    headers::announce_body(&mut request);
    peer.describe(&mut request, conn);
    match exchange(peer, conn, request).await {
        Ok(response) => {
            let silence = peer.timeouts().silence(response.headers());
            response::pass_back(response, |body| ResponseBody::stream(Download::new(body, silence))).await
        }
        Err(status) => error(status),
    }
}

async fn exchange<P: Peer>(
    peer: &P,
    conn: ConnInfo,
    request: Request<BoundedBody>,
) -> Result<Response<Incoming>, StatusCode> {
    let progress = Progress::new();
    let asked = websocket::asked(request.extensions());
    let mut request = request.map(|body| Upload::new(body, progress.clone()));
    let mut kept = peer.pool().take();
    let mut attempt = Attempt::first(&request, P::RESET_MEANS_UNREAD);
    loop {
        let (generation, undelivered) = (peer.pool().generation(), peer.undelivered());
        attempt.is_kept = kept.is_some();
        let mut sender = match kept.take() {
            Some(sender) => sender,
            None => peer.connect(conn).await?,
        };
        let empty = || Upload::new(BoundedBody::empty(), progress.clone());
        let copy = attempt.is_copied().then(|| copy_of(&request, empty()));
        progress.note();
        let sent = progress.watch(peer.timeouts().answer, sender.send(request)).await;
        let mut failure = match sent.ok_or(StatusCode::GATEWAY_TIMEOUT)? {
            // Its connection ends with a response that is refused: what is behind such a one is nobody's.
            Ok(response) if response::is_refused(&response, asked.as_ref()) => {
                return Err(StatusCode::BAD_GATEWAY);
            }
            Ok(response) => {
                if peer.keeps() {
                    keep(peer.pool().clone(), sender, generation);
                }
                return Ok(response);
            }
            Err(failure) => failure,
        };
        request = match (failure.take_message().filter(|_| attempt.is_kept), copy) {
            // A kept connection that the backend has closed: nothing was sent.
            (Some(unsent), _) => unsent,
            _ if !attempt.is_kept && peer.undelivered() > undelivered => {
                return Err(peer.refusal().unwrap_or(StatusCode::SERVICE_UNAVAILABLE));
            }
            (None, Some(copy)) if attempt.may_repeat(failure.error()) => copy,
            _ => return Err(fault(failure.error())),
        };
        attempt.number += 1;
    }
}

/// Keeps a connection once its response has been passed on.
fn keep(pool: Pool<Sender>, mut sender: Sender, generation: u64) {
    tokio::task::spawn_local(async move {
        if sender.ready().await {
            pool.put(sender, generation);
        }
    });
}

/// Begins to speak HTTP/1.1 on a connection.
pub(crate) async fn handshake<I>(io: I) -> Result<Sender, StatusCode>
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (sender, connection) = response::reader().handshake(io).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(Http1Client::new(sender, connection))
}

//! HTTP/1.1 with the servers of one target: requests on kept connections, answers as they come.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and answers of servers, which
//! may be compromised. Must never: send a request twice that may have had an effect, or let what a server sends after
//! its answer pass for another one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use wire::ProxyHeader;

use super::connect::Dialer;
use super::timeout::{Download, Progress, Upload};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::error;
use crate::http::websocket::{self, Asked};
use crate::proxy::backend::{Backend, BackendRequest, Responding};
use crate::proxy::headers;
use crate::proxy::http1_client::Http1Client;
use crate::proxy::response::{self, fault};
use crate::proxy::retry::{copy_of, is_repeatable};

/// LIMIT: connections of one target that are kept for further requests; more than run at once are of no use.
const IDLE_MAX: usize = 64;
/// LIMIT: how long a connection is of use after its last answer. Servers close what rests, Node, Apache and uvicorn after
/// 5 s, and what is sent at that moment is lost; a new connection costs less.
const REST_MAX: Duration = Duration::from_secs(4);

type Sender = Http1Client<Upload>;

/// A connection that is kept.
struct Kept {
    sender: Sender,
    since: Instant,
}

impl Kept {
    /// Whether it is still open, as far as is known, and will be for a moment.
    fn is_of_use(&self) -> bool {
        self.sender.is_ready() && self.since.elapsed() < REST_MAX
    }
}

/// The way to the servers of one target.
pub(crate) struct Http {
    dialer: Rc<Dialer>,
    target: u16,
    patience: Duration,
    proxy_header: ProxyHeader,
    idle: Rc<RefCell<Vec<Kept>>>,
}

impl Backend for Http {
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a> {
        Box::pin(self.answer(request))
    }
}

impl Http {
    pub fn new(dialer: Rc<Dialer>, target: u16, patience: Duration, proxy_header: ProxyHeader) -> Self {
        Self { dialer, target, patience, proxy_header, idle: Rc::default() }
    }

    /// Has a server answer `request`.
    async fn answer(&self, request: BackendRequest<'_>) -> Response<ResponseBody> {
        let BackendRequest { conn, mut request, .. } = request;
        headers::prepare(&mut request, conn);
        headers::announce_body(&mut request);
        let patience = self.patience;
        let body = |body| ResponseBody::stream(Download::new(body, patience));
        match self.exchange(conn, request).await {
            Ok(answer) => response::pass_back(answer, body).await,
            Err(status) => error(status),
        }
    }

    async fn exchange(
        &self,
        conn: ConnInfo,
        request: Request<BoundedBody>,
    ) -> Result<Response<Incoming>, StatusCode> {
        let progress = Progress::new();
        let asked = websocket::asked(request.extensions());
        let repeatable = is_repeatable(request.method(), request.body());
        let mut request = request.map(|body| Upload::new(body, progress.clone()));
        if let Some(mut sender) = self.kept() {
            let empty = || Upload::new(BoundedBody::empty(), progress.clone());
            let copy = repeatable.then(|| copy_of(&request, empty()));
            let sent = progress.watch(self.patience, sender.send(request)).await;
            match sent.ok_or(StatusCode::GATEWAY_TIMEOUT)? {
                Ok(answer) => return self.answered(sender, answer, asked),
                // A kept connection that the server has closed: the request goes on a new one if it was not sent, or
                // may be sent twice.
                Err(mut error) => {
                    request = error.take_message().or(copy).ok_or_else(|| fault(error.error()))?;
                }
            }
        }
        let mut sender = self.connect(conn).await?;
        progress.note();
        let sent = progress.watch(self.patience, sender.send(request)).await;
        match sent.ok_or(StatusCode::GATEWAY_TIMEOUT)? {
            Ok(answer) => self.answered(sender, answer, asked),
            Err(error) => Err(fault(error.error())),
        }
    }

    /// The connection that rests for the shortest time.
    fn kept(&self) -> Option<Sender> {
        let mut idle = self.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop()).find(Kept::is_of_use).map(|kept| kept.sender)
    }

    async fn connect(&self, conn: ConnInfo) -> Result<Sender, StatusCode> {
        let mut stream = self.dialer.connect(self.target).await?;
        let header = match self.proxy_header {
            ProxyHeader::None => Vec::new(),
            ProxyHeader::Version1 => request::proxy::version1(conn.peer, conn.local),
            ProxyHeader::Version2 => request::proxy::version2(conn.peer, conn.local),
        };
        // It fits into the buffer of a new connection.
        stream.write_all(&header).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        let handshake = response::reader().handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(Http1Client::new(sender, connection))
    }

    /// Keeps the connection once its answer has been passed on; that of one that is refused is closed.
    fn answered(
        &self,
        mut sender: Sender,
        answer: Response<Incoming>,
        asked: Option<Asked>,
    ) -> Result<Response<Incoming>, StatusCode> {
        if response::is_refused(&answer, asked.as_ref()) {
            return Err(StatusCode::BAD_GATEWAY);
        }
        // One that begins with the name of a client is that client's.
        let reusable = self.proxy_header == ProxyHeader::None;
        if reusable && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let idle = self.idle.clone();
            tokio::task::spawn_local(async move {
                if sender.ready().await {
                    let mut idle = idle.borrow_mut();
                    idle.retain(Kept::is_of_use);
                    if idle.len() < IDLE_MAX {
                        idle.push(Kept { sender, since: Instant::now() });
                    }
                }
            });
        }
        Ok(answer)
    }
}

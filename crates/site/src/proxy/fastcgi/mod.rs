//! FastCGI: requests for scripts, answered by a server such as php-fpm.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and every byte of FastCGI
//! servers, which run what others have written. Must never: name a script that is not the site's, or keep a whole body
//! in memory.

mod ahead;
mod body;
mod connections;
mod direct;
mod incoming;
mod outgoing;
mod script;
#[cfg(test)]
mod tests;
mod words;

use std::rc::Rc;

use fastcgi::parameters::{self, Circumstances, Script};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;

use crate::files::RootFiles;
use crate::files::response::status_of;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::internal_redirect::{FailedWith, RequestedTarget};
use crate::http::response::error;
use crate::proxy::backend::{AtOnce, BackendRequest, HttpBackend, RequestContext, Responding};
use crate::proxy::direct::{ResumedRequest, SentRequest};
use crate::proxy::headers;
use crate::proxy::response::begun;
use crate::proxy::retry::is_repeatable;
use crate::proxy::stream::{BackendDialer, BackendStream};
use crate::proxy::timeout::{TimedUpload, Timeouts, UploadProgress};
use body::MemoryShare;
use connections::{Connections, FastCgiConnection};
use incoming::{FastCgiFailure, RunningRequest};
use outgoing::FastCgiWriter;
use request::error::SERVER;

pub(crate) use body::BodyMemory;
pub(crate) use direct::{BEHIND_BODY, pass_back_reply};
pub use script::Scripts;
pub(crate) use words::Words;

/// The variables of a request that do not come from its head.
fn around<'a>(
    conn: ConnInfo,
    root: &'a str,
    (script, filename): (&'a Script, Option<&'a [u8]>),
    length: Option<u64>,
) -> Circumstances<'a> {
    let ConnInfo { peer, local, tls, .. } = conn;
    Circumstances { software: SERVER, peer, local, tls, root, script, filename, length }
}

/// The way to the servers of one target.
pub(crate) struct FastCgi {
    dialer: Rc<BackendDialer>,
    target: u16,
    connections: Connections,
    timeouts: Timeouts,
    scripts: Scripts,
    words: Rc<Words>,
    memory: Rc<BodyMemory>,
}

/// A request as it is written.
struct PreparedRequest {
    outgoing: FastCgiWriter,
    progress: Rc<UploadProgress>,
    to_head: bool,
    /// Whether it may be sent twice.
    repeatable: bool,
    /// Whether all of its body is here, to be sent from its beginning.
    is_here: bool,
    /// The memory that the body takes.
    _share: Option<MemoryShare>,
}

impl HttpBackend for FastCgi {
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a> {
        Box::pin(self.answer(request))
    }

    fn at_once(&self) -> Option<&dyn AtOnce> {
        Some(self)
    }

    /// A script that is not there needs no body.
    fn refuses(&self, files: Option<&RootFiles>, path: &str) -> Option<StatusCode> {
        self.scripts.find(files, path).err().map(status_of)
    }
}

impl FastCgi {
    pub fn new(
        (dialer, target): (Rc<BackendDialer>, u16),
        requests: u32,
        timeouts: Timeouts,
        scripts: Scripts,
        words: Words,
        memory: Rc<BodyMemory>,
    ) -> Self {
        let (connections, words) = (Connections::new(requests), Rc::new(words));
        let kept = connections.clone();
        dialer.on_moved(target, move || kept.clear());
        Self { dialer, target, connections, timeouts, scripts, words, memory }
    }

    /// A new connection.
    async fn connect(&self) -> Result<(FastCgiConnection, bool), StatusCode> {
        let stream = BackendStream::connect(&self.dialer, self.target).await?;
        Ok((self.connections.begin(stream), false))
    }

    /// A connection for the first attempt to send a request; whether it is one on which the request may be lost unread.
    async fn first(&self, repeatable: bool, is_here: bool) -> Result<(FastCgiConnection, bool), StatusCode> {
        let kept = self.connections.take();
        match kept {
            Some(connection) if repeatable => return Ok((connection, true)),
            kept => drop(kept),
        }
        match is_here.then(|| self.dialer.aimed(self.target)).flatten() {
            Some(stream) => Ok((self.connections.begin(stream), false)),
            None => self.connect().await,
        }
    }

    /// Has a server answer `request`.
    async fn answer(&self, request: BackendRequest<'_>) -> Response<ResponseBody> {
        let BackendRequest { context, mut request } = request;
        let exchanged = match ResumedRequest::take(request.extensions_mut()) {
            Some(under_way) => self.go_on(under_way).await,
            None => match self.prepare(context, request).await {
                Ok(prepared) => self.send_prepared(prepared).await,
                Err(status) => Err(status),
            },
        };
        match exchanged {
            Ok(answer) => begun(answer).await,
            Err(status) => error(status),
        }
    }

    /// The first records of a request for this host whose body is so long; what they say is taken out of its head.
    fn beginning(
        &self,
        RequestContext { conn, files, root }: RequestContext<'_>,
        parts: &mut Parts,
        host: &HeaderValue,
        length: Option<u64>,
    ) -> Result<Vec<u8>, StatusCode> {
        let script = self.scripts.find(files, parts.uri.path()).map_err(status_of)?;
        let changes = parts.extensions.remove::<headers::HeaderChanges>().unwrap_or_default();
        let filename = files.map(|files| files.path_seen(&script.name, root));
        let requested = parts.extensions.remove();
        let failed = parts.extensions.remove().map(|FailedWith(status)| status);
        Ok(parameters::begin(&mut parameters::ParameterSource {
            around: around(conn, root, (&script, filename.as_deref()), length),
            parts,
            requested: requested.as_ref().map(|RequestedTarget(requested)| requested),
            failed,
            host: host.as_bytes(),
            set: &changes.set,
        }))
    }

    async fn prepare(
        &self,
        context: RequestContext<'_>,
        mut request: Request<BoundedBody>,
    ) -> Result<PreparedRequest, StatusCode> {
        let host = headers::settle_host(&mut request, context.conn);
        let (mut parts, body) = request.into_parts();
        let (mut body, share) = match body.size_hint().exact() {
            Some(_) => (body, None),
            None => {
                self.scripts.find(context.files, parts.uri.path()).map_err(status_of)?;
                body::gather(body, &self.memory).await.map(|(body, share)| (body, Some(share)))?
            }
        };
        let length = body.size_hint().exact().filter(|&length| length > 0 || !body.is_end_stream());
        let begin = self.beginning(context, &mut parts, &host, length)?;
        let repeatable = is_repeatable(&parts.method, &body);
        let is_here = repeatable || body.is_here();
        body.keep();
        let to_head = parts.method == Method::HEAD;
        let progress = UploadProgress::new();
        let outgoing =
            FastCgiWriter::new(begin, TimedUpload::new(body, progress.clone()), length.unwrap_or_default());
        Ok(PreparedRequest { outgoing, progress, to_head, repeatable, is_here, _share: share })
    }

    /// Has a request answered that is to be written.
    async fn send_prepared(&self, prepared: PreparedRequest) -> Result<Response<ResponseBody>, StatusCode> {
        let (connection, kept) = self.first(prepared.repeatable, prepared.is_here).await?;
        prepared.progress.note();
        let PreparedRequest { outgoing, progress, to_head, _share, .. } = prepared;
        let running = RunningRequest::new(connection, outgoing, self.words.clone());
        self.exchange(running, &progress, kept, to_head).await
    }

    /// Has a request answered that was written at once, as far as it was.
    async fn go_on(&self, under_way: SentRequest) -> Result<Response<ResponseBody>, StatusCode> {
        let SentRequest { stream, generation, text, written, partial, since, .. } = under_way;
        let connection = FastCgiConnection::since(since, stream, generation);
        let progress = UploadProgress::since(since);
        let outgoing = FastCgiWriter::resumed(text, written, progress.clone());
        let mut running = RunningRequest::new(connection, outgoing, self.words.clone());
        running.take(&partial).map_err(|failure| self.told(&failure))?;
        // A request that may be sent twice is not begun so.
        self.exchange(running, &progress, false, false).await
    }

    async fn exchange(
        &self,
        mut running: RunningRequest,
        progress: &Rc<UploadProgress>,
        mut kept: bool,
        to_head: bool,
    ) -> Result<Response<ResponseBody>, StatusCode> {
        loop {
            let head = progress.watch(self.timeouts.answer, running.head()).await;
            let Some(head) = head else {
                running.stream().fell_silent(&self.dialer);
                self.connections.clear();
                return Err(StatusCode::GATEWAY_TIMEOUT);
            };
            let failure = match head {
                Err(FastCgiFailure::Gone { heard: false }) if kept || running.is_refused() => {
                    if running.is_refused() {
                        self.dialer.found_nobody(self.target);
                    }
                    let mut outgoing = running.outgoing;
                    outgoing.restart();
                    drop(self.connections.take());
                    let connection;
                    (connection, kept) = self.connect().await?;
                    progress.note();
                    running = RunningRequest::new(connection, outgoing, self.words.clone());
                    continue;
                }
                Err(failure) => failure,
                Ok(reply) => {
                    let silence = self.timeouts.silence(&reply.headers);
                    match running.answer(reply, to_head, &self.connections, silence) {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => failure,
                    }
                }
            };
            return Err(self.told(&failure));
        }
    }

    /// The status that a client gets for a failure; logs a server's mistake.
    fn told(&self, failure: &FastCgiFailure) -> StatusCode {
        match failure {
            FastCgiFailure::Client(status) => return *status,
            FastCgiFailure::Malformed(what) => self.words.say(what.as_bytes()),
            FastCgiFailure::Gone { heard: true } => self.words.say(b"answer that ended in its head"),
            FastCgiFailure::Gone { heard: false } => {}
        }
        StatusCode::BAD_GATEWAY
    }
}

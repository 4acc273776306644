//! FastCGI: requests for scripts, answered by a server such as php-fpm.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and every byte of FastCGI
//! servers, which run what others have written. Must never: name a script that is not the site's, or keep a whole body
//! in memory.

mod ahead;
mod answer;
mod connections;
mod script;
mod stdin;
mod words;

use std::rc::Rc;

use fastcgi::parameters::{self, parameters};
use fastcgi::record;
use http::{Request, Response, StatusCode};
use http_body::Body as _;

use crate::files::Files;
use crate::files::response::status_of;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::internal_redirect::{FailedWith, Requested};
use crate::http::response::error;
use crate::proxy::backend::{Backend, BackendRequest, Responding};
use crate::proxy::connect::Dialer;
use crate::proxy::headers;
use crate::proxy::response::begun;
use crate::proxy::retry::is_repeatable;
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::{Progress, Timeouts, Upload};
use answer::Running;
use connections::Connections;
use request::error::SERVER;
use stdin::{Gathering, Share};
pub(crate) use words::Words;

pub use script::Scripts;
pub(crate) use stdin::Gathering as BodyMemory;

/// The way to the servers of one target.
pub(crate) struct FastCgi {
    dialer: Rc<Dialer>,
    target: u16,
    connections: Connections,
    timeouts: Timeouts,
    scripts: Scripts,
    words: Rc<Words>,
    memory: Rc<Gathering>,
}

/// A request as it is written.
struct PreparedRequest {
    /// Its first records.
    begin: Vec<u8>,
    body: Upload,
    progress: Rc<Progress>,
    /// Whether it may be sent twice.
    repeatable: bool,
    /// The memory that the body takes.
    _share: Option<Share>,
}

impl Backend for FastCgi {
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a> {
        Box::pin(self.answer(request))
    }
}

impl FastCgi {
    pub fn new(
        (dialer, target): (Rc<Dialer>, u16),
        timeouts: Timeouts,
        scripts: Scripts,
        words: Words,
        memory: Rc<Gathering>,
    ) -> Self {
        let (connections, words) = (Connections::default(), Rc::new(words));
        let kept = connections.pool.clone();
        dialer.on_moved(target, move || kept.clear());
        Self { dialer, target, connections, timeouts, scripts, words, memory }
    }

    /// A kept connection, or a new one; and whether it is a kept one.
    async fn connect(&self, fresh: bool) -> Result<(BackendStream, bool), StatusCode> {
        match self.connections.pool.take() {
            Some(stream) if !fresh => Ok((stream, true)),
            // A kept connection goes for the new one: if it holds the server's last process, nobody else would answer.
            kept => {
                drop(kept);
                Ok((self.dialer.connect(self.target).await?, false))
            }
        }
    }

    /// Has a server answer `request`.
    async fn answer(&self, request: BackendRequest<'_>) -> Response<ResponseBody> {
        let BackendRequest { conn, files, root, request } = request;
        let is_head = request.method() == http::Method::HEAD;
        let prepared = match self.prepare(conn, files, root, request).await {
            Ok(prepared) => prepared,
            Err(status) => return error(status),
        };
        match self.exchange(prepared).await {
            Ok(answer) if is_head => answer.map(|_| ResponseBody::Empty),
            Ok(answer) => begun(answer).await,
            Err(status) => error(status),
        }
    }

    async fn prepare(
        &self,
        conn: ConnInfo,
        files: Option<&Files>,
        root: &str,
        mut request: Request<BoundedBody>,
    ) -> Result<PreparedRequest, StatusCode> {
        let script = self.scripts.find(files, request.uri().path()).map_err(status_of)?;
        let host = headers::settle_host(&mut request, conn);
        let changes = request.extensions_mut().remove::<headers::HeaderChanges>().unwrap_or_default();
        let (parts, body) = request.into_parts();
        let (body, share) = match body.size_hint().exact() {
            Some(_) => (body, None),
            None => stdin::gather(body, &self.memory).await.map(|(body, share)| (body, Some(share)))?,
        };
        let length = body.size_hint().exact().filter(|&length| length > 0 || !body.is_end_stream());
        let filename = files.map(|files| files.path_seen(&script.name, root));
        let all = parameters(&parameters::Request {
            software: SERVER,
            peer: conn.peer,
            local: conn.local,
            tls: conn.tls,
            root,
            script: &script,
            filename: filename.as_deref(),
            parts: &parts,
            requested: parts.extensions.get().map(|Requested(requested)| requested),
            failed: parts.extensions.get().map(|FailedWith(status)| *status),
            length,
            host: host.as_bytes(),
            set: &changes.set,
        });
        let begin = record::begin(all.iter().map(|(name, value)| (&name[..], &value[..])));
        let progress = Progress::new();
        let repeatable = is_repeatable(&parts.method, &body);
        let body = Upload::new(body, progress.clone());
        Ok(PreparedRequest { begin, body, progress, repeatable, _share: share })
    }

    async fn exchange(&self, prepared: PreparedRequest) -> Result<Response<ResponseBody>, StatusCode> {
        let PreparedRequest { begin, body, progress, repeatable, _share } = prepared;
        // A request that could not be sent twice does not go on a connection that the server may be about to close.
        let (stream, kept) = self.connect(!repeatable).await?;
        let again = kept.then(|| begin.clone());
        match self.run(stream, begin, body, &progress).await {
            Err((_, true)) if again.is_some() => {
                let (stream, _) = self.connect(true).await?;
                let body = Upload::new(BoundedBody::empty(), progress.clone());
                let begin = again.unwrap_or_default();
                self.run(stream, begin, body, &progress).await.map_err(|(status, _)| status)
            }
            outcome => outcome.map_err(|(status, _)| status),
        }
    }

    /// Sends a request and reads the head of its answer; an error comes with whether nothing was answered at all.
    async fn run(
        &self,
        stream: BackendStream,
        begin: Vec<u8>,
        body: Upload,
        progress: &Rc<Progress>,
    ) -> Result<Response<ResponseBody>, (StatusCode, bool)> {
        progress.note();
        let running = Running::start(stream, begin, body, self.connections.clone(), self.words.clone());
        let answer = progress.watch(self.timeouts.answer, running.head()).await;
        match answer.ok_or((StatusCode::GATEWAY_TIMEOUT, false))? {
            Ok((reply, running)) => {
                let silence = self.timeouts.silence(&reply.headers);
                Ok(running.answer(reply, silence))
            }
            Err(failure) => {
                if let Some(what) = failure.what {
                    self.words.say(what.as_bytes());
                }
                Err((failure.status, failure.nothing))
            }
        }
    }
}

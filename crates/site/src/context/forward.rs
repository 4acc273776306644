//! Requests on their way to whoever answers them: their bodies, and their places.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests, of which it looks at the addresses of
//! clients and the lengths of bodies. Must never: have a backend wait for a client that has not sent its body.

use std::fmt;
use std::mem::take;
use std::net::IpAddr;
use std::time::Instant;

use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use wire::log::Level;
use worker::refused::Untold;

use crate::context::state::WorkerState;
use crate::files::RootFiles;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response;
use crate::proxy::direct::ResumedRequest;
use crate::proxy::gather::{GatherError, gather, gather_all};
use crate::proxy::limit::{ANYBODY, BackendId, LimitRefusal, Permit};
use crate::proxy::spool::Lack;
use crate::router::destination::host_of;

/// A line about a request that was passed on to nobody.
struct Full<'a> {
    path: &'a str,
    held: usize,
    others: u64,
    /// The limit that the operator may raise.
    remedy: &'static str,
}

impl fmt::Display for Full<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, held, others, remedy } = self;
        write!(
            f,
            "503 for {path}: {held} requests are with whoever answers it, as many as may be at once, and none was \
             done in time; if it is not too slow but asked too much, raise {remedy}{}",
            Untold(*others)
        )
    }
}

/// A line about a body for which there was no room.
struct Unkept<'a> {
    path: &'a str,
    lack: &'a Lack,
    others: u64,
}

impl fmt::Display for Unkept<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, lack, others } = self;
        write!(f, "503 for {path}: {lack}; ")?;
        f.write_str(match lack {
            Lack::Full | Lack::Share => {
                "raise it, or have the route pass bodies on as they come (`buffer = false`)"
            }
            Lack::Disk(_) => "make room below `state_dir`",
        })?;
        Untold(*others).fmt(f)
    }
}

impl WorkerState {
    /// Has a backend answer, as soon as the body of the request has come and the backend has a place. `files` are those
    /// that the response may name. The request is taken once it has its place: it is large, and is not moved before.
    pub(crate) fn forward<'a>(
        &'a self,
        backend: BackendId,
        files: Option<&'a RootFiles>,
        conn: ConnInfo,
        request: &'a mut Request<BoundedBody>,
    ) -> impl Future<Output = Response<ResponseBody>> + 'a {
        let has_body = !request.body().is_end_stream();
        let refused = has_body.then(|| self.backends.refuses(backend, files, request.uri().path())).flatten();
        let answer = move |request| self.backends.answer(backend, files, conn, request);
        self.with_permit((backend, refused), conn, request, answer)
    }

    /// Has the site of `partition` answer; if the path has become another site's meanwhile, that one.
    pub(crate) async fn relay(
        &self,
        partition: u16,
        conn: ConnInfo,
        request: &mut Request<BoundedBody>,
    ) -> Response<ResponseBody> {
        let answer = move |request: Request<BoundedBody>| {
            let host = host_of(&request).unwrap_or_default();
            let now = self.owner(&conn, host.as_bytes(), request.uri().path()).partition();
            self.backends.relays.answer(now, conn, request)
        };
        self.with_permit((BackendId::Site(partition), None), conn, request, answer).await
    }

    /// A place with `backend`, if one is free now.
    pub(crate) fn permit_now(&self, backend: BackendId, conn: ConnInfo) -> Option<Permit> {
        self.limit.grant_now(backend, self.client(conn))
    }

    /// Whose share a request counts for.
    pub(super) fn client(&self, conn: ConnInfo) -> IpAddr {
        if self.shared_ports.contains(&conn.local.port()) { ANYBODY } else { conn.peer.ip() }
    }

    fn refuse(&self, backend: BackendId, refused: LimitRefusal, path: &str) -> Response<ResponseBody> {
        if let LimitRefusal::Busy { held } = refused
            && let Some(others) = self.full.borrow_mut().entry(backend).or_default().tell(Instant::now())
        {
            let remedy = match backend {
                BackendId::Site(_) => "`connections` of the site that has the certificate",
                BackendId::Target(_) | BackendId::Service(_) | BackendId::Streams => "its `requests`",
            };
            self.log().event(Level::Warning, Full { path, held, others, remedy });
        }
        response::overloaded()
    }

    /// Waits for the body of `request`, and then for a place with `backend`, and has `answer` begin there.
    ///
    /// In this order: a client that announces a body and sends none waits without a place. If the request is refused
    /// whatever its body is, the body is not read.
    async fn with_permit<'a, F>(
        &'a self,
        (backend, refused): (BackendId, Option<StatusCode>),
        conn: ConnInfo,
        request: &'a mut Request<BoundedBody>,
        answer: impl FnOnce(Request<BoundedBody>) -> F + 'a,
    ) -> Response<ResponseBody>
    where
        F: Future<Output = Response<ResponseBody>> + 'a,
    {
        if let Some(status) = refused {
            return response::error(status);
        }
        if !request.body().is_end_stream() {
            // Boxed: few requests have a body, and its future would enlarge that of the others.
            if let Err(error) = Box::pin(self.gather(backend, conn, request)).await {
                return self.ungathered(&error, request.uri().path());
            }
        }
        let permit = match ResumedRequest::permit(request.extensions()) {
            Some(permit) => Ok(permit),
            None if request.body().part().is_some() => {
                match Box::pin(self.acquire_keeping(backend, conn, request.body())).await {
                    Ok(permit) => permit,
                    Err(lack) => return self.ungathered(&lack.into(), request.uri().path()),
                }
            }
            None => self.limit.acquire(backend, self.client(conn)).await,
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(refused) => return self.refuse(backend, refused, request.uri().path()),
        };
        if let Some(stall) = permit.stall() {
            request.body_mut().watch(stall.clone());
        }
        // On the heap, as one that waits for its place would keep the room for it.
        permit.keep(Box::pin(answer(take(request))).await)
    }

    /// Waits for the body: for all of it, unless whoever answers wants it as it comes.
    async fn gather(
        &self,
        backend: BackendId,
        conn: ConnInfo,
        request: &mut Request<BoundedBody>,
    ) -> Result<(), GatherError> {
        let body = take(request.body_mut());
        *request.body_mut() = match self.backends.buffers(backend) {
            false => gather(body).await?,
            true => gather_all(body, &self.spool, self.client(conn)).await?,
        };
        // A body without a length may turn out empty; the server is told so.
        if request.body().is_end_stream() {
            request.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from_static("0"));
        }
        Ok(())
    }

    /// A place with `backend` for a request whose body waits in a file, which may be given up for that of another.
    async fn acquire_keeping(
        &self,
        backend: BackendId,
        conn: ConnInfo,
        body: &BoundedBody,
    ) -> Result<Result<Permit, LimitRefusal>, Lack> {
        let acquired = self.limit.acquire(backend, self.client(conn));
        let Some(part) = body.part() else { return Ok(acquired.await) };
        let permit = tokio::select! {
            biased;
            () = part.lost() => return Err(Lack::Full),
            permit = acquired => permit,
        };
        // INVARIANT: nothing was given up since, as nobody else has run.
        part.keep()?;
        Ok(permit)
    }

    /// The answer to a request whose body has not come, or has no place; the log is told of the latter.
    fn ungathered(&self, error: &GatherError, path: &str) -> Response<ResponseBody> {
        let GatherError::NoRoom(lack) = error else { return response::error(error.status()) };
        if let Some(others) = self.unkept.tell(Instant::now()) {
            self.log().event(Level::Warning, Unkept { path, lack, others });
        }
        response::overloaded()
    }
}

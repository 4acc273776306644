//! The backends that answer requests in place of files: a service, an HTTP server or a FastCGI server behind the site.
//!
//! Untrusted input: none that this module looks at. Must never: know one backend from another.

use std::pin::Pin;

use http::{Request, Response, StatusCode};

use tokio::time::Instant;

use crate::files::RootFiles;
use crate::head::{RequestField, RequestHead};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::proxy::pool::Pool;
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::Timeouts;

/// A request on its way to a backend. Its head has been checked: origin-form, no `Upgrade`, no names with `_`.
pub(crate) struct BackendRequest<'a> {
    /// The context of the request.
    pub context: RequestContext<'a>,
    /// The request itself.
    pub request: Request<BoundedBody>,
}

/// The facts about a request that its head does not hold.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    /// The client's connection.
    pub conn: ConnInfo,
    /// The site's files, for backends that run them.
    pub files: Option<&'a RootFiles>,
    /// The path of the files' root directory, as backends see it.
    pub root: &'a str,
}

impl RequestContext<'_> {
    /// For a backend that runs no files.
    pub fn without_files(conn: ConnInfo) -> Self {
        Self { conn, files: None, root: "" }
    }
}

/// A server of HTTP/1.1 whose connections are kept.
pub(crate) trait KeepAlive {
    /// The connections that are kept.
    fn pool(&self) -> &Pool<BackendStream>;

    /// How long the backend may take.
    fn timeouts(&self) -> Timeouts;

    /// Whether a connection may be kept once its response has been passed on.
    fn keeps(&self) -> bool;

    /// Whether requests are refused at once.
    fn refusal(&self) -> Option<StatusCode> {
        None
    }

    /// Whether the backend is told the client's address in our own words.
    fn names_client(&self) -> bool {
        false
    }
}

/// A server of FastCGI, for requests that are written at once with their bodies, each on a connection of its own.
pub(crate) trait AtOnce {
    /// Whether there is a socket for one.
    fn is_ready(&self) -> bool;

    /// How long the backend may take.
    fn timeouts(&self) -> Timeouts;

    /// Writes a request with this head and this body into `out`, which is empty, and gives the socket that it is for,
    /// with the generation of the kept connections. `None` if it is for the general path.
    fn begin(
        &self,
        out: &mut Vec<u8>,
        context: RequestContext<'_>,
        head: (&RequestHead<'_>, &[RequestField<'_>]),
        body: &[u8],
    ) -> Option<(BackendStream, u64)>;

    /// Keeps the connection of an exchange that began at this time and is over.
    fn leave(&self, stream: BackendStream, generation: u64, since: Instant);
}

/// A response that is awaited.
pub(crate) type Responding<'a> = Pin<Box<dyn Future<Output = Response<ResponseBody>> + 'a>>;

/// One backend.
pub(crate) trait HttpBackend {
    /// Has the backend answer. Dropped when the client disconnects.
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a>;

    /// The status with which a request for `path` is refused whatever its body is.
    fn refuses(&self, files: Option<&RootFiles>, path: &str) -> Option<StatusCode> {
        let _ = (files, path);
        None
    }

    /// The way to it for requests that are written at once, if it speaks FastCGI.
    fn at_once(&self) -> Option<&dyn AtOnce> {
        None
    }

    /// Its kept connections, if it speaks HTTP/1.1.
    fn link(&self) -> Option<&dyn KeepAlive> {
        None
    }
}

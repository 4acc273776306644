//! What answers requests in place of files: a service, an HTTP server or a FastCGI server behind the site.
//!
//! Untrusted input: none that this module looks at. Must never: know one backend from another.

use std::pin::Pin;

use http::{Request, Response};

use crate::files::Files;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;

/// A request on its way to a backend. Its head has been checked: origin-form, no `Upgrade`, no names with `_`.
pub(crate) struct BackendRequest<'a> {
    /// The client's connection.
    pub conn: ConnInfo,
    /// The site's files, for backends that run them.
    pub files: Option<&'a Files>,
    /// The path of the files' root directory, as backends see it.
    pub root: &'a str,
    /// The request itself.
    pub request: Request<BoundedBody>,
}

/// A response that is awaited.
pub(crate) type Responding<'a> = Pin<Box<dyn Future<Output = Response<ResponseBody>> + 'a>>;

/// One backend.
pub(crate) trait Backend {
    /// Has the backend answer. Dropped when the client disconnects.
    fn send<'a>(&'a self, request: BackendRequest<'a>) -> Responding<'a>;
}

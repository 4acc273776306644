//! What all have in common that answer a request in the place of files: services, upstreams, FastCGI servers and
//! functions.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and answers. Must never: treat
//! the same request or answer in one way for one of them and in another way for another.

pub(crate) mod connect;
pub mod fastcgi;
pub(crate) mod gather;
pub(crate) mod headers;
mod http;
mod http1_client;
pub(crate) mod limit;
pub(crate) mod response;
pub(crate) mod sendfile;
pub mod service;
pub(crate) mod stream;
pub(crate) mod timeout;
pub mod upstream;

use ::http::{Method, Request};

/// RFC 9110 9.2.1: what changes nothing may be asked twice.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The same request again, with the body `empty` in place of one that has ended.
pub(crate) fn copy_of<B>(request: &Request<B>, empty: B) -> Request<B> {
    let mut copy = Request::new(empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

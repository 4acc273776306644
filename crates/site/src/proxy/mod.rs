//! What all have in common that answer a request in the place of files: services, upstreams, FastCGI servers and
//! functions.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and answers. Must never: treat
//! the same request or answer in one way for one of them and in another way for another.

pub(crate) mod answer;
pub(crate) mod headers;

use http::Method;

/// RFC 9110 9.2.1: what changes nothing may be asked twice.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

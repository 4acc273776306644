//! When a request may be sent a second time.
//!
//! Untrusted input: none that this module looks at. Must never: have a request take effect twice.

use std::io;

use http::{Method, Request};
use http_body::Body;

/// LIMIT: how often a request is sent; each time a backend has gone with the request waiting.
const ATTEMPTS_MAX: u32 = 3;

/// How a request is sent this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub number: u32,
    /// Whether on a connection that was kept: its backend may have closed it before the request came.
    pub is_kept: bool,
    is_repeatable: bool,
    has_body: bool,
    reset_means_unread: bool,
}

impl Attempt {
    /// The first of `request`; `reset_means_unread` says whether a connection that is reset shows that its backend has
    /// read nothing.
    pub fn first<B: Body>(request: &Request<B>, reset_means_unread: bool) -> Self {
        let has_body = !request.body().is_end_stream();
        let is_repeatable = is_repeatable(request.method(), request.body());
        Self { number: 1, is_kept: false, is_repeatable, has_body, reset_means_unread }
    }

    /// Whether a copy of the request may be of use if this attempt fails.
    pub fn is_copied(&self) -> bool {
        let may_help = self.reset_means_unread || (self.is_kept && self.is_repeatable);
        may_help && !self.has_body && self.number < ATTEMPTS_MAX
    }

    /// Whether the copy may be sent, on a new connection, after this attempt failed with `error` and no response.
    ///
    /// A backend that has read nothing has done nothing, which only a reset of a socket pair shows. A kept connection may
    /// have been closed before the request came; a request that changes nothing is sent again then. Any other may have
    /// taken effect.
    pub fn may_repeat(&self, error: &hyper::Error) -> bool {
        if self.reset_means_unread { is_reset(error) } else { self.is_copied() }
    }
}

/// Whether a request may be sent again on a new connection when a kept one has failed without a response: it changes
/// nothing (RFC 9110 9.2.1), and no body of it has been used up.
pub(crate) fn is_repeatable<B: Body>(method: &Method, body: &B) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) && body.is_end_stream()
}

/// A Unix socket is reset, and not just ended, if its peer goes while bytes are in it that nobody has read.
fn is_reset(error: &hyper::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionReset;
        }
        cause = error.source();
    }
    false
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    fn attempt(method: Method, body: &'static str, is_kept: bool, reset_means_unread: bool) -> Attempt {
        let body = Full::new(Bytes::from_static(body.as_bytes()));
        let request = Request::builder().method(method).body(body).unwrap();
        Attempt { is_kept, ..Attempt::first(&request, reset_means_unread) }
    }

    #[test]
    fn only_safe_requests_without_a_body_are_sent_twice() {
        for (method, repeatable) in [(Method::GET, true), (Method::OPTIONS, true), (Method::POST, false)] {
            assert_eq!(attempt(method.clone(), "", true, false).is_copied(), repeatable, "{method}");
            assert!(!attempt(method.clone(), "a", true, false).is_copied(), "{method}");
            assert!(!attempt(method, "", false, false).is_copied());
        }
    }

    #[test]
    fn what_nobody_has_read_is_sent_again_but_not_for_ever() {
        let first = attempt(Method::POST, "", false, true);
        assert!(first.is_copied() && !attempt(Method::POST, "a", true, true).is_copied());
        assert!(!Attempt { number: ATTEMPTS_MAX, ..first }.is_copied());
    }
}

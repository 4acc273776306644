//! When a request may be sent a second time.
//!
//! Untrusted input: none that this module looks at. Must never: have a request take effect twice.

use http::Method;
use http_body::Body as _;

use crate::http::body::BoundedBody;

/// LIMIT: how often a request is sent; each time a backend has gone with the request waiting.
const ATTEMPTS_MAX: u32 = 3;

/// How a request is sent this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendAttempt {
    pub number: u32,
    /// Whether on a connection that was kept: its backend may have closed it before the request came.
    pub is_kept: bool,
    is_idempotent: bool,
    has_body: bool,
    /// Whether all of it is here, to be sent from its beginning.
    is_whole: bool,
    reset_means_unread: bool,
}

impl SendAttempt {
    /// The first of a request; `reset_means_unread` says whether a connection that is reset shows that its backend has
    /// read nothing.
    pub fn first(method: &Method, body: &BoundedBody, reset_means_unread: bool) -> Self {
        let (has_body, is_idempotent) = (!body.is_end_stream(), is_idempotent(method));
        let is_whole = !has_body || body.is_here();
        Self { number: 1, is_kept: false, is_idempotent, has_body, is_whole, reset_means_unread }
    }

    /// Whether the request may be sent again, on a new connection, after this attempt failed with no response; `reset`
    /// says whether the connection was reset, and `has_sent` whether the kernel has taken a byte of the request.
    ///
    /// A backend that has read nothing has done nothing. That is so where nothing was sent. Otherwise, only a reset of
    /// a socket pair shows it: the kernel resets it, and does not just end it, if its peer goes while bytes are in it
    /// that nobody has read; of a request with a body, these may be the end of the body. A kept connection may have
    /// been closed before the request came; a request that can take effect twice as well as once is sent again then.
    /// Any other may have taken effect.
    pub fn may_repeat(&self, reset: bool, has_sent: bool) -> bool {
        let is_harmless = match self.reset_means_unread {
            true => reset && !self.has_body,
            false => self.is_kept && self.is_idempotent,
        };
        (is_harmless || !has_sent) && self.is_whole && self.number < ATTEMPTS_MAX
    }
}

/// Whether a request may be sent again on a new connection when a kept one has failed without a response: its method
/// says so, and all of its body is here.
pub(crate) fn is_repeatable(method: &Method, body: &BoundedBody) -> bool {
    is_idempotent(method) && (body.is_end_stream() || body.is_here())
}

/// RFC 9110 9.2.2: whether twice is as good as once.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    fn attempt(method: &Method, body: &'static str, is_kept: bool, reset_means_unread: bool) -> SendAttempt {
        let body = BoundedBody::whole(Bytes::from_static(body.as_bytes()));
        SendAttempt { is_kept, ..SendAttempt::first(method, &body, reset_means_unread) }
    }

    #[test]
    fn only_what_takes_effect_once_is_sent_twice() {
        let idempotent = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE];
        for method in idempotent.into_iter().chain([Method::POST, Method::PATCH]) {
            let expected = !matches!(method, Method::POST | Method::PATCH);
            for body in ["", "a"] {
                assert_eq!(attempt(&method, body, true, false).may_repeat(false, true), expected, "{method}");
                assert!(!attempt(&method, body, false, false).may_repeat(true, true), "{method}");
            }
        }
    }

    #[test]
    fn what_nobody_has_read_is_sent_again_but_not_for_ever() {
        let first = attempt(&Method::POST, "", false, true);
        assert!(first.may_repeat(true, true) && !first.may_repeat(false, true));
        assert!(!attempt(&Method::POST, "a", true, true).may_repeat(true, true));
        assert!(!SendAttempt { number: ATTEMPTS_MAX, ..first }.may_repeat(true, true));
    }

    #[test]
    fn what_was_not_sent_is_sent_if_all_of_it_is_here() {
        for (is_kept, reset_means_unread) in [(true, true), (true, false), (false, true), (false, false)] {
            assert!(attempt(&Method::POST, "a", is_kept, reset_means_unread).may_repeat(false, false));
        }
        let codec = Full::new(Bytes::from_static(b"a")).map_err(|never| match never {});
        let streamed = BoundedBody::new(codec, 9, Rc::default());
        let first = SendAttempt::first(&Method::PUT, &streamed, false);
        assert!(!SendAttempt { is_kept: true, ..first }.may_repeat(true, false));
        assert!(!is_repeatable(&Method::PUT, &streamed));
    }
}

//! When a request may be sent a second time.
//!
//! Untrusted input: none that this module looks at. Must never: have a request take effect twice.

use http::Method;
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
    /// The first of a request; `reset_means_unread` says whether a connection that is reset shows that its backend has
    /// read nothing.
    pub fn first<B: Body>(method: &Method, body: &B, reset_means_unread: bool) -> Self {
        let has_body = !body.is_end_stream();
        let is_repeatable = is_repeatable(method, body);
        Self { number: 1, is_kept: false, is_repeatable, has_body, reset_means_unread }
    }

    /// Whether the request may be sent once more if this attempt fails.
    pub fn may_help(&self) -> bool {
        let helps = self.reset_means_unread || (self.is_kept && self.is_repeatable);
        helps && !self.has_body && self.number < ATTEMPTS_MAX
    }

    /// Whether the request may be sent again, on a new connection, after this attempt failed with no response; `reset` says
    /// whether the connection was reset.
    ///
    /// A backend that has read nothing has done nothing, which only a reset of a socket pair shows: the kernel
    /// resets it, and does not just end it, if its peer goes while bytes are in it that nobody has read. A kept connection may
    /// have been closed before the request came; a request that changes nothing is sent again then. Any other may have
    /// taken effect.
    pub fn may_repeat(&self, reset: bool) -> bool {
        self.may_help() && (reset || !self.reset_means_unread)
    }
}

/// Whether a request may be sent again on a new connection when a kept one has failed without a response: it changes
/// nothing (RFC 9110 9.2.1), and no body of it has been used up.
pub(crate) fn is_repeatable<B: Body>(method: &Method, body: &B) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) && body.is_end_stream()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    fn attempt(method: Method, body: &'static str, is_kept: bool, reset_means_unread: bool) -> Attempt {
        let body = Full::new(Bytes::from_static(body.as_bytes()));
        Attempt { is_kept, ..Attempt::first(&method, &body, reset_means_unread) }
    }

    #[test]
    fn only_safe_requests_without_a_body_are_sent_twice() {
        for (method, repeatable) in [(Method::GET, true), (Method::OPTIONS, true), (Method::POST, false)] {
            assert_eq!(attempt(method.clone(), "", true, false).may_help(), repeatable, "{method}");
            assert!(!attempt(method.clone(), "a", true, false).may_help(), "{method}");
            assert!(!attempt(method, "", false, false).may_help());
        }
    }

    #[test]
    fn what_nobody_has_read_is_sent_again_but_not_for_ever() {
        let first = attempt(Method::POST, "", false, true);
        assert!(first.may_help() && !attempt(Method::POST, "a", true, true).may_help());
        assert!(!Attempt { number: ATTEMPTS_MAX, ..first }.may_help());
    }
}

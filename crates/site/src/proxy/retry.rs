//! When a request may be sent a second time.
//!
//! Untrusted input: none that this module looks at. Must never: have a request take effect twice.

use http::{Method, Request};
use http_body::Body;

/// Whether a request may be sent again on a new connection when a kept one has failed without a response: it changes
/// nothing (RFC 9110 9.2.1), and no body of it has been used up.
pub(crate) fn is_repeatable<B: Body>(method: &Method, body: &B) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) && body.is_end_stream()
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
    use http_body_util::{Empty, Full};

    use super::*;

    #[test]
    fn only_safe_requests_without_a_body_are_sent_twice() {
        for (method, repeatable) in [(Method::GET, true), (Method::OPTIONS, true), (Method::POST, false)] {
            assert_eq!(is_repeatable(&method, &Empty::<Bytes>::new()), repeatable, "{method}");
            assert!(!is_repeatable(&method, &Full::new(Bytes::from_static(b"a"))), "{method}");
        }
    }
}

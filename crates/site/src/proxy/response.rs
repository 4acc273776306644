//! Answers of servers behind the site and of services: what is refused of their heads, and of bodies that break before
//! the client has been told anything.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the answers. Must never: pass on an answer that two
//! readers could find the end of in two places, or wait for more of a body than is there.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use request::fields;

use crate::http::body::{BodyStream, BoxError, ResponseBody};
use crate::http::response::error;
use crate::http::websocket::UpgradeRequest;

/// LIMIT: bytes of an answer's head, as large as any server's default, with room for many cookies.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
pub(crate) use request::response_head::LINES_MAX as HEAD_LINES_MAX;
/// LIMIT: what is taken of a body before its head is passed on, if it is there.
const FIRST_BYTES_MAX: usize = 16 << 10;
const FIRST_PIECES_MAX: usize = 8;

/// Whether an answer's head is refused; `asked` is what the request asked for, if that was a WebSocket.
pub(crate) fn is_refused<B>(answer: &Response<B>, asked: Option<&UpgradeRequest>) -> bool {
    let (status, version, headers) = (answer.status(), answer.version(), answer.headers());
    // RFC 9110 15.2: HTTP/1.0 has no such status. Those that come before an answer were read over.
    let granted = || version == Version::HTTP_11 && asked.is_some_and(|asked| asked.is_met_by(headers));
    // RFC 9110 15: others are of no class that a client knows.
    let unknown = status.as_u16() > 599 || (status.is_informational() && !granted());
    unknown || is_ambiguous(version, headers) || head_bytes(headers) > HEAD_BYTES_MAX
}

/// RFC 9112 6.3: whether two readers could find the end of this answer in two places, or its coding would be lost.
fn is_ambiguous(version: Version, headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let length = lengths.next();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let coding = codings.next();
    lengths.next().is_some()
        || length.is_some_and(|length| fields::length(length).is_none())
        || codings.next().is_some()
        || coding.is_some_and(|coding| {
            // RFC 9112 6.1: HTTP/1.0 has no codings.
            !coding.eq_ignore_ascii_case(b"chunked") || length.is_some() || version != Version::HTTP_11
        })
}

/// Bytes of a head, without the status line and blanks: what has arrived may be longer than what is waited for.
fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + ": \r\n".len() + value.len()).sum()
}

/// The answer with what has come of its body; 502 in its place if that is broken already.
///
/// Nothing is waited for: a body may be silent for hours.
pub(crate) async fn begun(answer: Response<ResponseBody>) -> Response<ResponseBody> {
    let (parts, body) = answer.into_parts();
    let ResponseBody::Stream(inner) = body else {
        return Response::from_parts(parts, body);
    };
    let mut begun = PrefetchedBody { first: VecDeque::new(), inner };
    match begun.take_first().await {
        Ok(()) => whole(parts, begun),
        Err(_) => error(StatusCode::BAD_GATEWAY),
    }
}

fn whole(parts: Parts, begun: PrefetchedBody) -> Response<ResponseBody> {
    let PrefetchedBody { first, inner } = begun;
    let body = match first.is_empty() {
        true => inner,
        false => Box::pin(PrefetchedBody { first, inner }),
    };
    Response::from_parts(parts, ResponseBody::Stream(body))
}

/// A body of which something has come already.
struct PrefetchedBody {
    first: VecDeque<Frame<Bytes>>,
    inner: BodyStream,
}

impl PrefetchedBody {
    /// Takes what is there.
    async fn take_first(&mut self) -> Result<(), BoxError> {
        let mut bytes = 0;
        // The reader of the answer goes on to its body only when the body is polled, piece by piece.
        let mut asked = false;
        while bytes < FIRST_BYTES_MAX && self.first.len() < FIRST_PIECES_MAX && !self.inner.is_end_stream() {
            match poll_fn(|cx| Poll::Ready(self.inner.as_mut().poll_frame(cx))).await {
                Poll::Ready(None) => break,
                Poll::Ready(Some(frame)) => {
                    let frame = frame?;
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    self.first.push_back(frame);
                    asked = false;
                }
                Poll::Pending if asked => break,
                Poll::Pending => {
                    asked = true;
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(())
    }
}

impl Body for PrefetchedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match this.first.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => this.inner.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum::<u64>();
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(first + inner.lower());
        if let Some(upper) = inner.upper() {
            hint.set_upper(first + upper);
        }
        hint
    }
}

/// Leaves an answer that has no body without one, and without the length of one (RFC 9110 6.4.1, 8.6).
pub(crate) fn leave_out_body(response: &mut Response<ResponseBody>) {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
    if bodiless.contains(&response.status()) {
        *response.body_mut() = ResponseBody::Empty;
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(version: Version, status: u16, lines: &[(&'static str, &str)]) -> bool {
        let mut answer = Response::builder().version(version).status(status);
        for (name, value) in lines {
            answer = answer.header(*name, *value);
        }
        is_refused(&answer.body(()).unwrap(), None)
    }

    #[test]
    fn heads_with_two_ends_are_refused() {
        const LENGTH: &str = "content-length";
        const CODING: &str = "transfer-encoding";
        let bad: [&[_]; 10] = [
            &[(LENGTH, "3"), (LENGTH, "3")],
            &[(LENGTH, "3, 3")],
            &[(LENGTH, "03")],
            &[(LENGTH, "+3")],
            &[(LENGTH, "")],
            &[(LENGTH, "3"), (CODING, "chunked")],
            &[(CODING, "gzip, chunked")],
            &[(CODING, "chunked"), (CODING, "chunked")],
            &[(CODING, "identity")],
            &[(CODING, "")],
        ];
        for lines in bad {
            assert!(refused(Version::HTTP_11, 200, lines), "{lines:?}");
        }
        for lines in [&[][..], &[(LENGTH, "0")], &[(LENGTH, "30")], &[(CODING, "Chunked")]] {
            assert!(!refused(Version::HTTP_11, 200, lines), "{lines:?}");
        }
        assert!(refused(Version::HTTP_10, 200, &[(CODING, "chunked")]));
    }

    #[test]
    fn statuses_that_are_none_are_refused() {
        for status in [101, 199, 600, 999] {
            assert!(refused(Version::HTTP_11, status, &[]), "{status}");
        }
        for status in [200, 204, 304, 404, 599] {
            assert!(!refused(Version::HTTP_11, status, &[]), "{status}");
        }
    }

    #[test]
    fn large_heads_are_refused() {
        assert!(!refused(Version::HTTP_11, 200, &[("x-large", &"x".repeat(HEAD_BYTES_MAX - 11))]));
        assert!(refused(Version::HTTP_11, 200, &[("x-large", &"x".repeat(HEAD_BYTES_MAX - 10))]));
    }
}

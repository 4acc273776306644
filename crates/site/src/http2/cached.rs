//! Answers from the cache, for HTTP/2: the same fields and bytes that HTTP/1.1 sends as they are.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none. Must never: copy more of a body than the
//! client takes.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::files::cache::Representation;
use crate::http::body::{BoxError, ResponseBody, Shared};

/// LIMIT: bytes of a body copied at once, the size of a frame.
const STEP_BYTES: usize = 16 << 10;

/// The answer that `representation` is, or that it is unchanged.
pub(super) fn response(representation: Rc<Representation>, unchanged: bool) -> Response<ResponseBody> {
    let (status, prebuilt) = match unchanged {
        true => (StatusCode::NOT_MODIFIED, &representation.unchanged),
        false => (StatusCode::OK, &representation.whole),
    };
    let (headers, length) = (prebuilt.fields().clone(), prebuilt.body_bytes());
    let body = match unchanged || length == 0 {
        true => ResponseBody::Empty,
        false => ResponseBody::Shared(Box::new(Copied { representation, sent: 0, length, step: STEP_BYTES })),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The body of a form, copied as it is sent.
struct Copied {
    representation: Rc<Representation>,
    sent: usize,
    length: usize,
    step: usize,
}

impl Shared for Copied {
    fn in_steps_of(&mut self, bytes: u64) {
        self.step = usize::try_from(bytes).unwrap_or(usize::MAX).min(STEP_BYTES);
    }
}

impl Body for Copied {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.sent == this.length {
            return Poll::Ready(None);
        }
        let piece = this.representation.whole.piece(this.sent, this.step);
        this.sent += piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.length - self.sent) as u64)
    }
}

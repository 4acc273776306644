//! Answers from the cache, for HTTP/2: the same fields and bytes that HTTP/1.1 sends as they are. An answer that fits
//! goes out at once, without a task or a stream.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none. Must never: copy more of a body than the
//! client takes.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use ::http2::{Connection, hpack};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::request::{check_raw, raw_fields};
use crate::context::SiteContext;
use crate::context::state::RouteOwner;
use crate::files::cache::Representation;
use crate::head::Verb;
use crate::http::access_record::AccessRecord;
use crate::http::body::{BoxError, ResponseBody, SharedBody};
use crate::http::conn_info::ConnInfo;
use crate::http1::fast_path;

/// LIMIT: bytes of a body copied at once, the size of a frame.
const STEP_BYTES: usize = 16 << 10;

/// The outcome for a request that may be answered at once.
pub(super) enum Fast {
    Answered,
    /// It is for the general path; whether its client may make it, if that was asked.
    General(Option<bool>),
}

/// Answers a request that was just received, if that can be done at once.
pub(super) fn answer(
    site: &SiteContext,
    conn: &ConnInfo,
    connection: &mut Connection,
    request: &::http2::Http2Head,
    now: Instant,
) -> Fast {
    let general = Fast::General(None);
    let Some(head) = Some(request).filter(|request| request.is_whole()).and_then(check_raw) else {
        return general;
    };
    if site.worker.owner(conn, head.host, head.path) != RouteOwner::Own
        || site.examine(head.method, head.target, raw_fields(request)).is_err()
    {
        return general;
    }
    let tick = site.clock.tick(now);
    let Some((representation, unchanged)) = fast_path::cached(site, &head, tick) else {
        return general;
    };
    let (status, prebuilt) =
        if unchanged { (304, &representation.unchanged) } else { (200, &representation.whole) };
    let Some(block) = prebuilt.block() else { return general };
    let bytes = prebuilt.bytes(tick, || site.clock.date());
    let body = if head.verb == Verb::Head { &[] } else { prebuilt.body_of(&bytes) };
    if !connection.has_room(body.len()) {
        return general;
    }
    if !site.worker.allows(conn, now) {
        return Fast::General(Some(false));
    }
    connection.answer(request, body, now, |out| {
        out.extend_from_slice(block);
        hpack::field(out, b"date", &site.clock.date());
        if let Some(hsts) = site.hsts.borrow().as_ref().filter(|_| conn.tls) {
            hpack::field(out, b"strict-transport-security", hsts.value.as_bytes());
        }
    });
    let access = AccessRecord::refused(conn, status, body.len() as u64, now).with_head(&head);
    site.worker.record(&AccessRecord { minor: 2, ..access });
    Fast::Answered
}

/// The answer that `representation` is, or that it is unchanged.
pub(super) fn response(representation: Rc<Representation>, unchanged: bool) -> Response<ResponseBody> {
    let (status, prebuilt) = match unchanged {
        true => (StatusCode::NOT_MODIFIED, &representation.unchanged),
        false => (StatusCode::OK, &representation.whole),
    };
    let (headers, length) = (prebuilt.fields().clone(), prebuilt.body_bytes());
    let body = match unchanged || length == 0 {
        true => ResponseBody::Empty,
        false => {
            ResponseBody::Shared(Box::new(CachedBody { representation, sent: 0, length, step: STEP_BYTES }))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The body of a form, copied as it is sent.
struct CachedBody {
    representation: Rc<Representation>,
    sent: usize,
    length: usize,
    step: usize,
}

impl SharedBody for CachedBody {
    fn in_steps_of(&mut self, bytes: u64) {
        self.step = usize::try_from(bytes).unwrap_or(usize::MAX).min(STEP_BYTES);
    }
}

impl Body for CachedBody {
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

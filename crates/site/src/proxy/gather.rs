//! The body of a request before it is passed on: a backend is not to wait for a client that announced one and sends none.
//!
//! Untrusted input: bodies of clients. Must never: keep more than a client has sent, or wait for one that is too slow.

use bytes::BytesMut;
use http_body::Body as _;
use http_body_util::BodyExt as _;

use crate::http::body::{BodyError, BoundedBody};

/// LIMIT: bytes of a body kept until all of it has come: most forms, and what a stream of HTTP/2 may send unasked. Of a
/// longer body, so much comes before the backend hears of it.
const GATHERED_MAX: usize = 64 << 10;

/// Waits until a short body is whole, or the first [`GATHERED_MAX`] bytes of a longer one are there.
///
/// Of a body whose length was not said, only the first piece is waited for: a client that sends it piece by piece may
/// wait for an answer to each. Trailers are not passed on.
pub(crate) async fn gather(mut body: BoundedBody) -> Result<BoundedBody, BodyError> {
    if body.is_end_stream() {
        return Ok(body);
    }
    let announced = body.size_hint().exact().is_some();
    // Copied: a piece may be a byte of a buffer that is held as long as the piece.
    let mut came = BytesMut::new();
    while came.len() < GATHERED_MAX && (announced || came.is_empty()) {
        let Some(frame) = body.frame().await else {
            return Ok(BoundedBody::whole(came.freeze()));
        };
        if let Ok(data) = frame?.into_data() {
            came.extend_from_slice(&data);
        }
        if body.is_end_stream() {
            return Ok(BoundedBody::whole(came.freeze()));
        }
    }
    body.give_first(came.freeze());
    Ok(body)
}

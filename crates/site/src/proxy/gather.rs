//! The body of a request before it is passed on: a backend is not to wait for a client that announced one and sends
//! none, or sends it slowly.
//!
//! Untrusted input: bodies of clients. Must never: keep more in memory than a client has sent and its limit, or wait
//! for one that is too slow.

use std::net::IpAddr;

use bytes::BytesMut;
use http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt as _;

use crate::http::body::{BodyError, BoundedBody};
use crate::proxy::spool::{BLOCK_BYTES, Lack, Spool, SpooledBody};

/// LIMIT: bytes of a body kept in memory until all of it has come: most forms, and what a stream of HTTP/2 may send
/// unasked. Of a longer body that is passed on as it comes, so much comes before the backend hears of it.
const GATHERED_MAX: usize = BLOCK_BYTES;

/// Bytes that are worth a write of their own to the file; what comes in smaller pieces is put together in memory
/// before.
const PIECE_BYTES: usize = 16 << 10;

/// A body in one piece of so many bytes is not copied: the buffer that it is part of has at most some times as many.
const PAGE_BYTES: usize = 4 << 10;

/// Why there is no body to pass on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatherError {
    /// The client is to blame.
    #[error(transparent)]
    Client(#[from] BodyError),
    /// There is no room for it.
    #[error(transparent)]
    NoRoom(#[from] Lack),
}

impl GatherError {
    /// The status that the client gets.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Client(error) => error.status(),
            Self::NoRoom(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

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

/// Waits until all of a body is there, which may be in `spool` if it is long; `client` is whose it is.
pub(crate) async fn gather_all(
    mut body: BoundedBody,
    spool: &Spool,
    client: IpAddr,
) -> Result<BoundedBody, GatherError> {
    let is_long = body.size_hint().lower() > GATHERED_MAX as u64;
    let mut memory_max = if is_long { PIECE_BYTES } else { GATHERED_MAX };
    let mut came = BytesMut::new();
    let mut part = None;
    while !body.is_end_stream() {
        let Some(frame) = next(&mut body, part.as_ref()).await? else { break };
        let Ok(data) = frame.into_data() else { continue };
        if came.is_empty() && part.is_none() && data.len() >= PAGE_BYTES && !is_long && body.is_end_stream() {
            return Ok(BoundedBody::whole(data));
        }
        if came.is_empty() && data.len() >= PIECE_BYTES && (is_long || part.is_some()) {
            part.get_or_insert_with(|| spool.begin(client)).push(&data)?;
            continue;
        }
        came.extend_from_slice(&data);
        if came.len() > memory_max {
            part.get_or_insert_with(|| spool.begin(client)).push(&came)?;
            // Not cleared: the rest may be long in coming.
            came = BytesMut::new();
            memory_max = PIECE_BYTES;
        }
    }
    let Some(mut part) = part else {
        return Ok(BoundedBody::whole(came.freeze()));
    };
    part.push(&came)?;
    Ok(BoundedBody::kept(part))
}

type Next = Option<http_body::Frame<bytes::Bytes>>;

/// The next piece; an error once what is there of the body was given up.
async fn next(body: &mut BoundedBody, part: Option<&SpooledBody>) -> Result<Next, GatherError> {
    let Some(part) = part else { return Ok(body.frame().await.transpose()?) };
    tokio::select! {
        biased;
        () = part.lost() => Err(Lack::Full.into()),
        frame = body.frame() => Ok(frame.transpose()?),
    }
}

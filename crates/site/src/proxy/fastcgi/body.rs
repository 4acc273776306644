//! Bodies whose length nobody has said, which CGI has to know before them.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: bodies of clients. Must never: keep more of them
//! than [`UNKNOWN_LENGTH_MAX`] in all.

use std::cell::Cell;
use std::rc::Rc;

use bytes::BytesMut;
use http::StatusCode;
use http_body_util::BodyExt as _;

use crate::http::body::BoundedBody;

/// LIMIT: bytes of bodies without a length that a worker keeps at once; the largest upload of this kind.
const UNKNOWN_LENGTH_MAX: usize = 64 << 20;

/// Memory for such bodies, shared by all of a worker.
#[derive(Debug)]
pub(crate) struct BodyMemory(Cell<usize>);

impl Default for BodyMemory {
    fn default() -> Self {
        Self(Cell::new(UNKNOWN_LENGTH_MAX))
    }
}

/// A part of that memory, for as long as a request has it.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    of: Rc<BodyMemory>,
    bytes: usize,
}

impl MemoryShare {
    fn grow(&mut self, bytes: usize) -> Result<(), StatusCode> {
        // Others have it now; a client may come again.
        let left = self.of.0.get().checked_sub(bytes).ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        self.of.0.set(left);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.of.0.set(self.of.0.get() + self.bytes);
    }
}

/// The whole of a body whose length was not said, and its share of the memory for such ones.
pub(crate) async fn gather(
    mut body: BoundedBody,
    memory: &Rc<BodyMemory>,
) -> Result<(BoundedBody, MemoryShare), StatusCode> {
    let (mut whole, mut share) = (BytesMut::new(), MemoryShare { of: memory.clone(), bytes: 0 });
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.status())?;
        if let Ok(data) = frame.into_data() {
            share.grow(data.len())?;
            whole.extend_from_slice(&data);
        }
    }
    Ok((BoundedBody::whole(whole.freeze()), share))
}

//! The body of a request, on its way to a FastCGI server.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: bodies of clients. Must never: keep more of one than
//! a piece, unless nobody has said its length; of those, more than [`UNKNOWN_LENGTH_MAX`] in all.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use bytes::BytesMut;
use fastcgi::record::{CONTENT_MAX, stdin_head};
use http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncWriteExt, WriteHalf};

use crate::http::body::BoundedBody;
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::Upload;

/// LIMIT: bytes of bodies without a length that a worker keeps at once; the largest upload of this kind.
const UNKNOWN_LENGTH_MAX: usize = 64 << 20;

/// Why a request could not be sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The client's body was not as it should be.
    Client(StatusCode),
    /// The server does not take it; it may have answered without.
    Server,
}

impl From<io::Error> for Unsent {
    fn from(_: io::Error) -> Self {
        Self::Server
    }
}

/// Writes a request; gives the connection back once all of it is written.
pub(crate) async fn write(
    mut stream: WriteHalf<BackendStream>,
    begin: Vec<u8>,
    mut body: Upload,
) -> Result<WriteHalf<BackendStream>, Unsent> {
    let written = write_all(&mut stream, begin, &mut body).await;
    if let Err(error) = written {
        // The server waits for the rest, which will not come.
        let _ = stream.shutdown().await;
        return Err(error);
    }
    Ok(stream)
}

async fn write_all(
    stream: &mut WriteHalf<BackendStream>,
    mut begin: Vec<u8>,
    body: &mut Upload,
) -> Result<(), Unsent> {
    if body.is_end_stream() {
        begin.extend_from_slice(&stdin_head(0));
        return Ok(stream.write_all(&begin).await?);
    }
    stream.write_all(&begin).await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unsent::Client(error.status()))?;
        let Ok(data) = frame.into_data() else { continue };
        for piece in data.chunks(CONTENT_MAX) {
            stream.write_all(&stdin_head(piece.len())).await?;
            stream.write_all(piece).await?;
        }
    }
    Ok(stream.write_all(&stdin_head(0)).await?)
}

/// Memory for bodies whose length was not said, which CGI has to know before them; shared by all of a worker.
#[derive(Debug)]
pub(crate) struct Gathering(Cell<usize>);

impl Default for Gathering {
    fn default() -> Self {
        Self(Cell::new(UNKNOWN_LENGTH_MAX))
    }
}

/// A part of that memory, for as long as a request has it.
#[derive(Debug)]
pub(crate) struct Share {
    of: Rc<Gathering>,
    bytes: usize,
}

impl Share {
    fn grow(&mut self, bytes: usize) -> Result<(), StatusCode> {
        // Others have it now; a client may come again.
        let left = self.of.0.get().checked_sub(bytes).ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        self.of.0.set(left);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.set(self.of.0.get() + self.bytes);
    }
}

/// The whole of a body whose length was not said, and its share of the memory for such ones.
pub(crate) async fn gather(
    mut body: BoundedBody,
    memory: &Rc<Gathering>,
) -> Result<(BoundedBody, Share), StatusCode> {
    let (mut whole, mut share) = (BytesMut::new(), Share { of: memory.clone(), bytes: 0 });
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.status())?;
        if let Ok(data) = frame.into_data() {
            share.grow(data.len())?;
            whole.extend_from_slice(&data);
        }
    }
    Ok((BoundedBody::whole(whole.freeze()), share))
}

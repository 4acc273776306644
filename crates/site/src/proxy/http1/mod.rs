//! HTTP/1.1 to servers behind the site and to services, on connections that the request's own future drives: there is
//! no task, no channel and no buffer for a connection that waits for its next request.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: every byte of a response. Must never: take what a
//! backend sends after its response for another one, or go on with a request that nobody waits for any more.

mod incoming;
mod keep;
mod outgoing;
mod shared;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use request::head;
use request::response_head::{self, ResponseHead};
use tokio::io::{AsyncRead, ReadBuf};

use super::response::HEAD_BYTES_MAX;
use super::stream::BackendStream;

pub(crate) use incoming::receive;
pub(crate) use keep::Keep;
pub(crate) use outgoing::RequestWriter;

/// LIMIT: bytes read at once while a head is awaited: most responses, with their bodies.
const STEP_BYTES: usize = 16 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; STEP_BYTES].into());
}

/// Memory to read to; what belongs to a connection is copied, so that one that waits has no buffer.
pub(super) fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum Http1Failure {
    /// The body of the request was not as it should be.
    Client(StatusCode),
    /// The connection failed; whether it was reset.
    Gone { reset: bool },
    /// The server sent no response.
    Malformed,
}

impl From<io::Error> for Http1Failure {
    fn from(error: io::Error) -> Self {
        Self::Gone { reset: error.kind() == io::ErrorKind::ConnectionReset }
    }
}

/// A final head, and what was read behind it.
pub(crate) type FinalHead = (ResponseHead, Bytes);

/// Sends a request, and waits for the head of its response, which a backend may send before it has all of the request.
/// `partial` is what has come of it already.
pub(crate) async fn send(
    stream: &mut BackendStream,
    outgoing: &mut RequestWriter,
    mut partial: Vec<u8>,
) -> Result<FinalHead, Http1Failure> {
    if let Some(begun) = begun_by(&mut partial)? {
        return Ok(begun);
    }
    poll_fn(|cx| {
        if let Poll::Ready(Err(failure)) = outgoing.poll(cx, stream) {
            return Poll::Ready(Err(failure));
        }
        poll_head(cx, stream, &mut partial)
    })
    .await
}

/// Reads until a head is whole; `partial` has what came before.
fn poll_head(
    cx: &mut Context<'_>,
    stream: &mut BackendStream,
    partial: &mut Vec<u8>,
) -> Poll<Result<FinalHead, Http1Failure>> {
    with_scratch(|scratch| {
        loop {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Err(Http1Failure::Gone { reset: false }));
            }
            let begun = match partial.is_empty() {
                true => {
                    let (taken, begun) = final_head(buffer.filled())?;
                    partial.extend_from_slice(if begun.is_some() { &[] } else { &buffer.filled()[taken..] });
                    begun
                }
                false => {
                    let searched = partial.len();
                    partial.extend_from_slice(buffer.filled());
                    // A backend that sends a byte at a time does not have the worker parse each time.
                    match head::may_have_ended(partial, searched) {
                        true => begun_by(partial)?,
                        false => None,
                    }
                }
            };
            if let Some(begun) = begun {
                return Poll::Ready(Ok(begun));
            }
            if partial.len() > HEAD_BYTES_MAX {
                return Poll::Ready(Err(Http1Failure::Malformed));
            }
        }
    })
}

/// The final head that begins or follows in `partial`, from which what is used up is taken.
fn begun_by(partial: &mut Vec<u8>) -> Result<Option<FinalHead>, Http1Failure> {
    let (taken, begun) = final_head(partial)?;
    partial.drain(..taken);
    Ok(begun)
}

/// The first head in `data` that is not an interim one, with what follows it; and the bytes of those before it.
///
/// RFC 9110 15.2: what comes before a response is read over. That a protocol is switched is a response.
fn final_head(data: &[u8]) -> Result<(usize, Option<FinalHead>), Http1Failure> {
    let mut taken = 0;
    loop {
        let Some(head) = response_head::parse(&data[taken..]).map_err(|_| Http1Failure::Malformed)? else {
            return Ok((taken, None));
        };
        taken += head.length;
        if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
            let rest = Bytes::copy_from_slice(&data[taken..]);
            return Ok((taken, Some((head, rest))));
        }
    }
}

//! Writing a response of HTTP/1: its head together with what there is of its body, then the rest as it comes.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: how fast the client reads. Must never: ask for more
//! of a body than the client has taken, or keep others waiting for one fast client.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use hyper::ext::ReasonPhrase;

use crate::http::body::ResponseBody;
use crate::http1::outgoing::ResponseOutput;
use crate::http1::response::{BodySize, RequestTraits, encode_head};
use crate::http1::state::ExchangeState;

/// LIMIT: bytes written to one client before others have their turn, about 0.2 ms of copying.
const TURN_BYTES: usize = 1 << 20;
/// Room for the heads of most responses.
const HEAD_BYTES: usize = 512;

/// A response under way.
pub(super) struct ResponseWriter {
    outgoing: ResponseOutput,
    /// Whether the first bytes of the body may still go out together with the head.
    is_new: bool,
}

impl ResponseWriter {
    /// Begins `response`.
    pub fn new(state: &ExchangeState, traits: RequestTraits, response: &Response<ResponseBody>) -> Self {
        let body = response.body();
        let size = match body.size_hint().exact() {
            _ if body.is_end_stream() => BodySize::Known(0),
            Some(size) => BodySize::Known(size),
            None => BodySize::Unknown,
        };
        let reason = response.extensions().get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(state.take_interim());
        let begun = encode_head(&mut head, traits, response.status(), reason, response.headers(), size);
        state.keep.set(begun.keep);
        state.head_bytes.set(state.head_bytes.get() + head.len() as u64);
        Self { outgoing: ResponseOutput::new(head, begun.body), is_new: true }
    }

    /// Writes the response as far as body and client let it; an error if either has broken off.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        state: &ExchangeState,
        body: &mut ResponseBody,
    ) -> Poll<io::Result<()>> {
        let mut turn = 0;
        loop {
            let is_starved = match std::mem::take(&mut self.is_new) || !self.outgoing.is_unsent() {
                true => self.fill(cx, state, body),
                false => false,
            };
            while self.outgoing.is_unsent() {
                turn += ready!(self.poll_write(cx, state))?;
            }
            if self.outgoing.is_broken() {
                state.broke.set(true);
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            if is_starved || !self.outgoing.is_open() {
                ready!(state.poll_flush(cx))?;
                return if self.outgoing.is_open() { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
            if turn >= TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Takes what there is of the body, up to a large piece, or many small ones; whether more has to be waited for.
    fn fill(&mut self, cx: &mut Context<'_>, state: &ExchangeState, body: &mut ResponseBody) -> bool {
        while self.outgoing.has_room() {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return true,
                Poll::Ready(None) => self.outgoing.end(),
                Poll::Ready(Some(Err(_))) => self.outgoing.break_off(),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let count = self.outgoing.push(data, body.is_end_stream());
                        state.body_bytes.set(state.body_bytes.get() + count as u64);
                    }
                    // Trailers: no client of HTTP/1 gets any.
                    Err(_) => self.outgoing.end(),
                },
            }
        }
        false
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, state: &ExchangeState) -> Poll<io::Result<usize>> {
        if state.with_io(|exchange_io| exchange_io.stream.is_tls()).unwrap_or_default() {
            self.outgoing.pack();
        }
        let count = ready!(state.poll_write(cx, &self.outgoing.slices().map(IoSlice::new)))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.outgoing.advance(count);
        Poll::Ready(Ok(count))
    }
}

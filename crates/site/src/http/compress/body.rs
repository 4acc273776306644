//! A body that is compressed as it is sent.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the body. Must never: hold back what its sender has
//! flushed, or work on for a client that has gone: the body is dropped then.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::{Encoder, PIECE_BYTES, remove_digests};
use crate::http::body::{BoxError, ResponseBody};

/// Bytes that come out before they are sent, unless there is nothing more to compress now.
const OUT_BYTES: usize = 8 << 10;

/// Receives the whole compressed body at its end; not called if there is no end.
pub type Keep = Box<dyn FnOnce(Vec<u8>)>;

/// The body.
pub struct CompressedBody {
    inner: ResponseBody,
    /// `None` once it has finished.
    encoder: Option<Encoder>,
    /// Read and not yet compressed.
    waiting: Bytes,
    /// Whether the encoder holds something back.
    dirty: bool,
    trailers: Option<HeaderMap>,
    /// All that came out, for whoever keeps it.
    kept: Option<(Vec<u8>, Keep)>,
}

impl CompressedBody {
    /// `inner`, compressed; `keep` gets a copy of all of it.
    pub fn new(inner: ResponseBody, encoder: Encoder, keep: Option<Keep>) -> CompressedBody {
        let kept = keep.map(|keep| (Vec::new(), keep));
        CompressedBody {
            inner,
            encoder: Some(encoder),
            waiting: Bytes::new(),
            dirty: false,
            trailers: None,
            kept,
        }
    }

    fn out(&mut self, bytes: Vec<u8>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some((kept, _)) = &mut self.kept {
            kept.extend_from_slice(&bytes);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    fn finish(&mut self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(mut encoder) = self.encoder.take() else {
            return Poll::Ready(None);
        };
        let mut bytes = encoder.take();
        match encoder.finish() {
            Ok(rest) if bytes.is_empty() => bytes = rest,
            Ok(rest) => bytes.extend(rest),
            Err(error) => return Poll::Ready(Some(Err(error.into()))),
        }
        let out = self.out(bytes);
        if let Some((kept, keep)) = self.kept.take() {
            keep(kept);
        }
        out
    }
}

/// The trailers that are still true of the compressed body.
fn true_trailers(mut trailers: HeaderMap) -> Option<HeaderMap> {
    remove_digests(&mut trailers);
    Some(trailers).filter(|trailers| !trailers.is_empty())
}

impl Body for CompressedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        loop {
            let Some(encoder) = &mut this.encoder else {
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            };
            if !this.waiting.is_empty() {
                let piece = this.waiting.split_to(this.waiting.len().min(PIECE_BYTES));
                if let Err(error) = encoder.write(&piece) {
                    return Poll::Ready(Some(Err(error.into())));
                }
                this.dirty = true;
                if encoder.ready() >= OUT_BYTES {
                    let bytes = encoder.take();
                    return this.out(bytes);
                }
                if piece.len() == PIECE_BYTES {
                    // Others have their turn.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.waiting = data,
                    Err(frame) => {
                        this.trailers = frame.into_trailers().ok().and_then(true_trailers);
                        return this.finish();
                    }
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return this.finish(),
                Poll::Pending => {
                    if !std::mem::take(&mut this.dirty) {
                        return Poll::Pending;
                    }
                    if let Err(error) = encoder.flush() {
                        return Poll::Ready(Some(Err(error.into())));
                    }
                    let bytes = encoder.take();
                    return if bytes.is_empty() { Poll::Pending } else { this.out(bytes) };
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

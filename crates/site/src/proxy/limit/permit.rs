//! One request's place with a backend, and how long it lasts.
//!
//! Untrusted input: none that it looks at. Must never: give a place back while a backend is at work on the request.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use super::{BackendId, LimitState, Stall, settle};
use crate::http::body::{BodyStream, BoxError, ResponseBody};
use crate::http::websocket;

/// The place; it is free again when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Permit(Arc<HeldPlace>);

struct HeldPlace {
    state: Arc<Mutex<LimitState>>,
    backend: BackendId,
    client: IpAddr,
    /// Where it is lent.
    stall: Option<Stall>,
}

impl fmt::Debug for HeldPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("backend", &self.backend).field("client", &self.client).finish()
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        settle(&self.state, |state| state.release(self.backend, self.client, self.stall.as_ref()));
    }
}

impl Permit {
    pub(super) fn new(
        state: Arc<Mutex<LimitState>>,
        backend: BackendId,
        client: IpAddr,
        stall: Option<Stall>,
    ) -> Self {
        Self(Arc::new(HeldPlace { state, backend, client, stall }))
    }

    /// The stall timer, if the place is lent and may be taken back.
    pub(crate) fn stall(&self) -> Option<&Stall> {
        self.0.stall.as_ref()
    }

    /// Keeps it until the answer is over. The sender of the answer finds [`Stall`] with it, if the place is lent.
    pub(crate) fn keep(self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        websocket::keep(&mut response, self.0.clone());
        if !matches!(response.body(), ResponseBody::Stream(_)) {
            // Nobody else is at work on it any more.
            return response;
        }
        if let Some(stall) = self.stall() {
            stall.begin();
            response.extensions_mut().insert(stall.clone());
        }
        response.map(|body| match body {
            ResponseBody::Stream(inner) => ResponseBody::Stream(Box::pin(PermitBody { inner, permit: self })),
            ours => ours,
        })
    }
}

/// A body that a backend is at work on. It is asked for more when the client has taken what there was.
struct PermitBody {
    inner: BodyStream,
    permit: Permit,
}

impl Body for PermitBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = self.inner.as_mut().poll_frame(cx);
        if let Some(stall) = self.permit.stall() {
            stall.end();
            if polled.is_ready() {
                stall.begin();
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

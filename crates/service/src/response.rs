//! A response, as a service makes it.
//!
//! Runs in: a service's worker. Sees: what the service puts in. Never: fails; a header that cannot be sent is
//! left out.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use crate::body::BodyError;
use crate::context::Error;

/// A response: an [`http::Response`] and ways to make it.
///
/// ```
/// use bulkhead_service::{Response, StatusCode};
///
/// let response = Response::text("no such package\n").with_status(StatusCode::NOT_FOUND);
/// assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
/// ```
///
/// It is one pointer, so that a function may return `Result<Response, Response>`, and `?` makes answers of errors.
#[derive(Debug)]
pub struct Response(Box<http::Response<ResponseBody>>);

/// The body of a response.
pub struct ResponseBody(BodyKind);

enum BodyKind {
    Full(Option<Bytes>),
    Streaming(Pin<Box<dyn http_body::Body<Data = Bytes, Error = Error>>>),
}

impl Response {
    /// A response of any type of content.
    pub fn new(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut response = http::Response::new(ResponseBody::from(body.into()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        // SECURITY: text must not become a page because it looks like one.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Self(Box::new(response))
    }

    /// An HTML page.
    pub fn html(page: impl Into<Bytes>) -> Self {
        Self::new("text/html; charset=utf-8", page)
    }

    /// Plain text.
    pub fn text(text: impl Into<Bytes>) -> Self {
        Self::new("text/plain; charset=utf-8", text)
    }

    /// A small page that says what `status` says.
    pub fn status_page(status: StatusCode) -> Self {
        Self::status_text(status, "")
    }

    /// The same with a sentence, which is HTML.
    pub(crate) fn status_text(status: StatusCode, sentence: &str) -> Self {
        Self::html(request::error::page(status, sentence)).with_status(status)
    }

    /// The same with another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        *self.0.status_mut() = status;
        self
    }

    /// The same with one more header; one that cannot stand in a header is left out.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.0.headers_mut().insert(name, value);
        }
        self
    }

    /// The same as the last one on its connection.
    pub(crate) fn with_close(self) -> Self {
        self.with_header(CONNECTION, "close")
    }

    /// The response without its helpers.
    pub fn into_http(self) -> http::Response<ResponseBody> {
        *self.0
    }

    /// The whole body as text, for tests of a service.
    ///
    /// # Errors
    /// Those of a streaming body.
    pub async fn into_text(self) -> Result<String, Error> {
        let bytes = self.0.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Deref for Response {
    type Target = http::Response<ResponseBody>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Response {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// The answer to a request whose body could not be read.
impl From<BodyError> for Response {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Stalled => StatusCode::REQUEST_TIMEOUT,
            BodyError::Broken(_) => StatusCode::BAD_REQUEST,
        };
        // The rest of the body cannot be told from a next request.
        Self::status_page(status).with_close()
    }
}

impl<B> From<http::Response<B>> for Response
where
    B: http_body::Body<Data = Bytes> + 'static,
    B::Error: Into<Error>,
{
    fn from(response: http::Response<B>) -> Self {
        Self(Box::new(response.map(ResponseBody::streaming)))
    }
}

impl ResponseBody {
    /// A body that is made while it is sent.
    pub fn streaming<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + 'static,
        B::Error: Into<Error>,
    {
        Self(BodyKind::Streaming(Box::pin(body.map_err(Into::into))))
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self(BodyKind::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            BodyKind::Full(bytes) => f.debug_tuple("Full").field(bytes).finish(),
            BodyKind::Streaming(_) => f.write_str("Streaming"),
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.0 {
            BodyKind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            BodyKind::Streaming(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Full(bytes) => bytes.is_none(),
            BodyKind::Streaming(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            BodyKind::Streaming(body) => body.size_hint(),
        }
    }
}

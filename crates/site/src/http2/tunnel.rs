//! WebSocket on a stream of HTTP/2 (RFC 8441): an extended CONNECT becomes the request of HTTP/1.1 that it stands for,
//! and what follows it a tunnel.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what a client asks for, and every byte after that,
//! of both sides; those are passed on unread. Must never: take more from one side than the other has taken, or let a
//! client believe in a tunnel that there is not.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http2::{Protocol, Stream};
use bytes::{Buf, Bytes};
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::context::SiteContext;
use crate::http::body::ResponseBody;
use crate::http::response;
use crate::http::websocket::{self, OpenTunnel, UpgradeRequest};

/// The methods for a resource that answers a GET, but not as a tunnel.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// Makes an extended CONNECT the GET that asks for the same over HTTP/1.1, so that whatever holds for one holds for it.
///
/// RFC 9220 3: 501 for a protocol that is not known.
pub(super) fn as_get(parts: &mut Parts) -> Result<(), StatusCode> {
    let Some(protocol) = parts.extensions.remove::<Protocol>() else {
        return Ok(());
    };
    if !protocol.0.eq_ignore_ascii_case("websocket") {
        return Err(StatusCode::NOT_IMPLEMENTED);
    }
    // RFC 9110 9.3.6: it has no body. Behind us, a length would be that of what is sent on the tunnel.
    if parts.headers.contains_key(header::CONTENT_LENGTH) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let asked = UpgradeRequest::over_http2(&parts.headers)?;
    parts.method = Method::GET;
    parts.extensions.insert(asked);
    Ok(())
}

/// Makes the answer what the client must see: 200 where there is a tunnel, whose other side this is, and only there.
pub(super) fn settle(response: &mut Response<ResponseBody>) -> Option<OpenTunnel> {
    if let Some(opened) = websocket::opened(response) {
        *response.status_mut() = StatusCode::OK;
        *response.body_mut() = ResponseBody::Empty;
        for name in [header::CONTENT_LENGTH, header::SEC_WEBSOCKET_ACCEPT] {
            response.headers_mut().remove(name);
        }
        return Some(opened);
    }
    if response.status().is_success() {
        *response = response::error(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(header::ALLOW, ALLOW);
    }
    None
}

/// Sends the answer, and passes what follows until both sides have ended; an error if one has broken off.
pub(super) async fn pass(
    site: &SiteContext,
    stream: &Stream,
    response: Response<ResponseBody>,
    opened: OpenTunnel,
    count: &Cell<u64>,
) -> io::Result<()> {
    let idle = site.worker.limits().idle_timeout;
    stream.send_head(response.status(), response.headers(), false).map_err(io::Error::other)?;
    let both = StreamIo { stream, rest: Bytes::new() };
    // A client that has said all it has to say may still break off.
    let gone = poll_fn(|cx| stream.poll_reset(cx));
    tokio::select! {
        ended = websocket::tunnel(both, Bytes::new(), opened, idle, count) => ended,
        () = gone => Err(io::ErrorKind::ConnectionReset.into()),
    }
}

/// A stream as a connection of its own.
struct StreamIo<'a> {
    stream: &'a Stream,
    /// Bytes that have come and are not taken yet.
    rest: Bytes,
}

impl AsyncRead for StreamIo<'_> {
    /// The client may send as much again as was taken, and no more.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A frame may be empty, which is not the end.
        while this.rest.is_empty() {
            match ready!(this.stream.poll_data(cx)) {
                Some(data) => this.rest = data.map_err(io::Error::other)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = this.rest.len().min(out.remaining());
        out.put_slice(&this.rest[..count]);
        this.rest.advance(count);
        this.stream.release(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamIo<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let room = ready!(self.stream.poll_room(cx)).ok_or(io::ErrorKind::BrokenPipe)?;
        let count = room.min(bytes.len());
        self.stream.send_data(Bytes::copy_from_slice(&bytes[..count]), false).map_err(io::Error::other)?;
        Poll::Ready(Ok(count))
    }

    /// The task that polls the connection sends what there is.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// RFC 8441 5: END_STREAM stands for the end of a connection.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.stream.send_data(Bytes::new(), true);
        Poll::Ready(ended.map_err(io::Error::other))
    }
}

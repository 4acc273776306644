//! A connection to a server behind the site, with what HTTP and FastCGI need to know of it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at. Must never: block.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use sys::foreign::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use wire::Unreachable;
use worker::dialer::Dialer;
use worker::pair::Pair;
use worker::server_stream::ServerStream;

use super::pool::Reusable;

/// The way to the servers behind the site.
pub(crate) type BackendDialer = Dialer<BackendStream>;

/// See the file's head.
///
/// A server may answer before it has read the whole request, and close: of a body that is too large for it, for
/// example. A write that finds this out says nothing, so that whoever writes goes on to read the answer, or that there
/// is none.
pub(crate) struct BackendStream {
    stream: ServerStream,
    /// The server takes no more.
    deaf: bool,
    /// Whether the kernel has taken a byte of the present request, as far as that was asked for.
    has_sent: bool,
    until: Option<Instant>,
    /// By which number the connector knows the connection, if it has made it.
    number: Option<u64>,
    /// Whether nobody was there to connect to, of which the kernel may tell who writes or who reads.
    refused: bool,
}

/// Takes over a connected socket; fails if that is no stream that a server could be at the other end of.
impl TryFrom<Connection> for BackendStream {
    type Error = io::Error;

    fn try_from(connection: Connection) -> io::Result<Self> {
        Ok(Self::new(connection.try_into()?))
    }
}

impl BackendStream {
    /// Takes over one end of a socket pair.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn of_pair(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self::new(ServerStream::Unix(Pair::new(socket)?)))
    }

    fn new(stream: ServerStream) -> Self {
        Self { stream, deaf: false, has_sent: true, until: None, number: None, refused: false }
    }

    /// A connection to `target`.
    ///
    /// # Errors
    /// The status that the client gets.
    pub async fn connect(dialer: &BackendDialer, target: u16) -> Result<Self, StatusCode> {
        let (stream, number) = dialer.connect_numbered(target).await.map_err(status)?;
        Ok(Self { number: Some(number), ..stream })
    }

    /// The server has not answered in time: if there are others, they are to be asked.
    pub fn fell_silent(&self, dialer: &BackendDialer) {
        self.number.into_iter().for_each(|number| dialer.fell_silent(number));
    }

    /// A request begins, of which nothing was sent yet.
    pub fn begin(&mut self) {
        self.has_sent = false;
    }

    /// Whether a byte of the present request may be on its way.
    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// The same connection, on which no request begins after `until`.
    pub fn used_until(self, until: Instant) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Whether a connection on which no answer is awaited is still open and has nothing to be read, as far as the
    /// runtime knows: the kernel is asked only after an event. If there is something, a byte of it is lost.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0];
        self.stream.try_read(&mut byte).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits for something to read, or the end.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(cx)
    }

    /// Whether a write has found that the server takes no more.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Whether no connection came about, of one that was to come with its first bytes: no server has heard of these.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    fn note<T>(&mut self, done: &io::Result<T>) {
        self.refused |= done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    }

    /// Notes the result of a write of `length` bytes; a server that reads no more makes it succeed.
    fn wrote(&mut self, length: usize, written: io::Result<usize>) -> io::Result<usize> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        self.note(&written);
        self.deaf |=
            written.as_ref().is_err_and(|error| matches!(error.kind(), BrokenPipe | ConnectionReset));
        self.has_sent |= !self.deaf && written.as_ref().is_ok_and(|&count| count > 0);
        if self.deaf { Ok(length) } else { written }
    }
}

impl Reusable for BackendStream {
    fn is_reusable(&self) -> bool {
        !self.deaf && self.is_quiet()
    }

    fn until(&self) -> Option<Instant> {
        self.until
    }
}

impl AsyncRead for BackendStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.note(&read);
        Poll::Ready(read)
    }
}

impl AsyncWrite for BackendStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.wrote(bytes.len(), written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        let length = slices.iter().map(|slice| slice.len()).sum();
        Poll::Ready(self.wrote(length, written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The status for a client whose request gets no connection.
fn status(why: Unreachable) -> StatusCode {
    match why {
        Unreachable::Refused | Unreachable::Unknown | Unreachable::Forbidden | Unreachable::Unresolved => {
            StatusCode::BAD_GATEWAY
        }
        Unreachable::Late => StatusCode::GATEWAY_TIMEOUT,
        Unreachable::Crowded => StatusCode::SERVICE_UNAVAILABLE,
    }
}

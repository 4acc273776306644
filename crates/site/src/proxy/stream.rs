//! A connection to a server behind the site: over TCP or a Unix socket, which makes no difference to who uses it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at. Must never: block.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use worker::pair::Pair;

use super::pool::Reusable;

/// See the file's head.
///
/// A server may answer before it has read the whole request, and close: of a body that is too large for it, for example.
/// A write that finds this out says nothing, so that whoever writes goes on to read the answer, or that there is none.
pub(crate) struct BackendStream {
    stream: Stream,
    /// The server takes no more.
    deaf: bool,
    until: Option<Instant>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(Pair),
}

impl BackendStream {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// It is no stream that a server could be at the other end of.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { stream: Stream::new(socket)?, deaf: false, until: None })
    }

    /// Takes over one end of a socket pair.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn of_pair(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { stream: Stream::Unix(Pair::new(socket)?), deaf: false, until: None })
    }

    /// The same connection, on which no request begins after `until`.
    pub fn used_until(self, until: Instant) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Whether a connection on which no answer is awaited is still open and has nothing to be read, as far as the runtime
    /// knows: the kernel is asked only after an event. If there is something, a byte of it is lost.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let read = match &self.stream {
            Stream::Tcp(stream) => stream.try_read(&mut byte),
            Stream::Unix(stream) => stream.try_read(&mut byte),
        };
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits for something to read, or the end.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Whether a write has found that the server takes no more.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// What a write of `length` bytes comes to.
    fn wrote(&mut self, length: usize, written: io::Result<usize>) -> io::Result<usize> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        self.deaf |=
            written.as_ref().is_err_and(|error| matches!(error.kind(), BrokenPipe | ConnectionReset));
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

impl Stream {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        if socket_type(&socket)? != SocketType::STREAM || socket_acceptconn(&socket)? {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is a socket of another kind"));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        match socket_domain(&socket)? {
            AddressFamily::UNIX => Ok(Self::Unix(Pair::new(socket)?)),
            AddressFamily::INET | AddressFamily::INET6 => {
                let stream = std::net::TcpStream::from(socket);
                // A body that comes in small pieces must not wait for acknowledgements.
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(TcpStream::from_std(stream)?))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Calls a method of the stream inside.
macro_rules! inner {
    ($self:ident, $stream:ident => $call:expr) => {
        match &mut $self.stream {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for BackendStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        inner!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for BackendStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(inner!(self, stream => Pin::new(stream).poll_write(cx, bytes)));
        Poll::Ready(self.wrote(bytes.len(), written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(inner!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices)));
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
        inner!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

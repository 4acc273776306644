//! A connection to a server: over TCP or a Unix socket, which makes no difference to who uses it.
//!
//! Runs in: site workers and data proxies. Untrusted input: none that it looks at. Must never: block.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::sockopt::{set_tcp_nodelay, socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use sys::foreign::{Connection, is_tcp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pair::Pair;

/// See the file's head.
#[derive(Debug)]
pub enum ServerStream {
    /// Over TCP.
    Tcp(Pair),
    /// Over a Unix socket.
    Unix(Pair),
}

/// Takes over a socket of this process's own; fails as that of a [`Connection`] does.
impl TryFrom<OwnedFd> for ServerStream {
    type Error = io::Error;

    fn try_from(socket: OwnedFd) -> io::Result<Self> {
        if is_tcp(&socket) {
            Connection::Tcp(socket).try_into()
        } else {
            Connection::Other(socket).try_into()
        }
    }
}

/// Takes over a connected socket; fails if that is no stream that a server could be at the other end of. Whether the
/// socket blocks makes no difference to a [`Pair`].
impl TryFrom<Connection> for ServerStream {
    type Error = io::Error;

    fn try_from(connection: Connection) -> io::Result<Self> {
        let socket = match connection {
            Connection::Tcp(socket) => {
                // Small pieces must not wait for acknowledgements.
                set_tcp_nodelay(&socket, true)?;
                return Ok(Self::Tcp(Pair::new(socket)?));
            }
            Connection::Other(socket) => socket,
        };
        if socket_type(&socket)? != SocketType::STREAM || socket_acceptconn(&socket)? {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is a socket of another kind"));
        }
        match socket_domain(&socket)? {
            AddressFamily::UNIX => Ok(Self::Unix(Pair::new(socket)?)),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl ServerStream {
    /// Reads what is there.
    ///
    /// # Errors
    /// `WouldBlock` if that is nothing.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (Self::Tcp(stream) | Self::Unix(stream)) = self;
        stream.try_read(buffer)
    }

    /// Waits for something to read, or the end.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_read_ready(cx)
    }

    fn inner(&mut self) -> &mut Pair {
        let (Self::Tcp(stream) | Self::Unix(stream)) = self;
        stream
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.inner()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.inner()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.inner()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.inner()).poll_shutdown(cx)
    }
}

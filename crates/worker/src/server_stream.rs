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
    /// Over TCP, and whether something was written to it.
    Tcp(Pair, FirstWrite),
    /// Over a Unix socket.
    Unix(Pair),
}

/// Whether a TCP connection has had its first write. Small pieces must not wait for acknowledgements of those before
/// (Nagle's algorithm, RFC 896), but before the first write there are none: a connection for one request that is
/// written at once needs no `TCP_NODELAY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstWrite {
    /// The first write is to come.
    ToCome,
    /// It has been, and nothing was written since.
    Over,
    /// The socket has `TCP_NODELAY`.
    WithoutDelay,
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
            Connection::Tcp(socket) => return Ok(Self::Tcp(Pair::new(socket)?, FirstWrite::ToCome)),
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
        let (Self::Tcp(stream, _) | Self::Unix(stream)) = self;
        stream.try_read(buffer)
    }

    /// Waits for something to read, or the end.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_read_ready(cx)
    }

    fn inner(&mut self) -> &mut Pair {
        let (Self::Tcp(stream, _) | Self::Unix(stream)) = self;
        stream
    }

    /// The stream, to be written to.
    fn writer(&mut self) -> io::Result<&mut Pair> {
        if let Self::Tcp(stream, first) = self {
            *first = match first {
                FirstWrite::ToCome => FirstWrite::Over,
                FirstWrite::Over => {
                    set_tcp_nodelay(stream.socket()?, true)?;
                    FirstWrite::WithoutDelay
                }
                FirstWrite::WithoutDelay => FirstWrite::WithoutDelay,
            };
        }
        Ok(self.inner())
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
        Pin::new(self.writer()?).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.writer()?).poll_write_vectored(cx, slices)
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::tcp_nodelay;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn only_a_second_write_asks_for_no_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let copy = socket.try_clone().unwrap();
        let mut stream = ServerStream::try_from(OwnedFd::from(socket)).unwrap();
        let mut found = Vec::new();
        for _ in 0..3 {
            found.push(tcp_nodelay(&copy).unwrap());
            stream.write_all(b"piece").await.unwrap();
        }
        assert_eq!(found, [false, false, true]);
    }
}

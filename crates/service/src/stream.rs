//! The socket of a connection, which the event loop watches only once it has to be waited for.
//!
//! Runs in: a service's worker. Sees: the bytes of clients. Never: interprets them.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::sockopt::socket_domain;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use worker::pair::Pair;

/// A client's connection, or one to the site's worker.
#[derive(Debug)]
pub(crate) enum ServiceStream {
    /// One that nobody has waited for yet: the request of most has arrived before them, and there is room for the
    /// answer.
    Fresh(Fresh),
    /// A client's.
    Tcp(TcpStream),
    /// The site's worker's.
    Unix(Pair),
}

/// A connection that the event loop does not know.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// Gone if the event loop did not take it.
    descriptor: Option<OwnedFd>,
    /// Whether it was read from, and written to. Only once each: what always has more would let nobody else have a
    /// turn.
    read: bool,
    written: bool,
}

/// Does the same to either kind of watched stream.
macro_rules! watched {
    ($stream:expr, $inner:ident => $action:expr) => {
        match $stream {
            ServiceStream::Fresh(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            ServiceStream::Tcp($inner) => $action,
            ServiceStream::Unix($inner) => $action,
        }
    };
}

impl ServiceStream {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self::Fresh(Fresh { descriptor: Some(descriptor), read: false, written: false })
    }

    /// Has the event loop watch it.
    ///
    /// # Errors
    /// Of the kind `Other`, where it is not what it should be.
    fn watch(&mut self) -> io::Result<()> {
        self.try_watch().map_err(io::Error::other)
    }

    fn try_watch(&mut self) -> io::Result<()> {
        let Self::Fresh(Fresh { descriptor, .. }) = self else {
            return Ok(());
        };
        let descriptor = descriptor.take().ok_or(io::ErrorKind::NotConnected)?;
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        *self = if socket_domain(&descriptor)? == AddressFamily::UNIX {
            Self::Unix(Pair::new(descriptor)?)
        } else {
            Self::Tcp(TcpStream::from_std(descriptor.into())?)
        };
        Ok(())
    }

    /// The descriptor of one that is not watched, for the first read.
    fn first_read(&mut self) -> Option<&OwnedFd> {
        match self {
            Self::Fresh(fresh) => {
                let is_first = !std::mem::replace(&mut fresh.read, true);
                fresh.descriptor.as_ref().filter(|_| is_first)
            }
            _ => None,
        }
    }

    fn first_write(&mut self) -> Option<&OwnedFd> {
        match self {
            Self::Fresh(fresh) => {
                let is_first = !std::mem::replace(&mut fresh.written, true);
                fresh.descriptor.as_ref().filter(|_| is_first)
            }
            _ => None,
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(descriptor) = self.first_read() {
            match recv(descriptor, buffer.initialize_unfilled(), RecvFlags::DONTWAIT) {
                Ok((count, _)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // Watching it says why it is none.
                Err(Errno::AGAIN | Errno::INTR | Errno::NOTSOCK) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        self.watch()?;
        watched!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }

    /// Writes; where the end of the connection follows, both may go in one packet.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        end_follows: bool,
    ) -> Poll<io::Result<usize>> {
        if let Some(descriptor) = self.first_write() {
            match send(descriptor, parts, end_follows) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Poll::Ready(Ok(result?)),
            }
        }
        self.watch()?;
        watched!(self, stream => Pin::new(stream).poll_write_vectored(cx, parts))
    }

    /// Sends what there is room for, without waiting.
    pub(crate) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Fresh(Fresh { descriptor, .. }) => match descriptor {
                Some(descriptor) => Ok(send(descriptor, &[IoSlice::new(bytes)], false)?),
                None => Err(io::ErrorKind::NotConnected.into()),
            },
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::Fresh(Fresh { descriptor: Some(descriptor), .. }) = self {
            return Poll::Ready(Ok(shutdown(descriptor, Shutdown::Write)?));
        }
        watched!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    /// Sends small answers at once.
    pub(crate) fn set_nodelay(&self) {
        // It only costs time when refused; a socket pair has no such delay.
        let _ = match self {
            Self::Fresh(Fresh { descriptor, .. }) => descriptor
                .iter()
                .try_for_each(|descriptor| rustix::net::sockopt::set_tcp_nodelay(descriptor, true))
                .map_err(io::Error::from),
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        };
    }
}

fn send(descriptor: &OwnedFd, parts: &[IoSlice<'_>], end_follows: bool) -> rustix::io::Result<usize> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, end_follows);
    sendmsg(descriptor, parts, &mut SendAncillaryBuffer::default(), flags)
}

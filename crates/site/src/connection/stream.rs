//! A client's connection, registered with the runtime: as it is, or under TLS.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at. Must never: block.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use http::HeaderValue;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::stream::TlsStream;

/// The connection.
pub(crate) enum ClientStream {
    /// Plaintext.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<TlsStream>),
}

impl ClientStream {
    /// The socket below.
    pub fn tcp(&mut self) -> &mut TcpStream {
        match self {
            ClientStream::Plain(tcp) => tcp,
            ClientStream::Tls(tls) => tls.tcp(),
        }
    }

    /// Whether it is under TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, ClientStream::Tls(_))
    }

    /// Whether bytes wait that were encrypted already.
    pub fn is_unsent(&self) -> bool {
        matches!(self, ClientStream::Tls(tls) if tls.unsent())
    }

    /// The certificate that the client has shown, as it is passed on.
    pub fn client_certificate(&self) -> Option<HeaderValue> {
        match self {
            ClientStream::Plain(_) => None,
            ClientStream::Tls(tls) => tls.client_certificate(),
        }
    }

    /// Reads what the client says; nothing at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            ClientStream::Plain(tcp) => Pin::new(tcp).poll_read(cx, out),
            ClientStream::Tls(tls) => tls.poll_read(cx, out),
        }
    }

    /// Looks whether the client has closed its side; once it has sent more instead, which clears `watch`, that cannot
    /// be seen any more.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>, watch: &mut bool) -> bool {
        let tcp = match self {
            ClientStream::Plain(tcp) => tcp,
            ClientStream::Tls(tls) => return tls.poll_gone(cx, watch),
        };
        let mut byte = [0];
        match tcp.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) if count > 0 => {
                *watch = false;
                false
            }
            Poll::Ready(_) => true,
        }
    }

    /// Whether the client has closed its side, or reset the connection, as far as the runtime has heard: also where
    /// what came before that is still unread. Does not read, and has nobody woken.
    pub fn is_closed(&mut self) -> bool {
        let ready = pin!(self.tcp().ready(Interest::READABLE));
        let mut nobody = Context::from_waker(Waker::noop());
        matches!(ready.poll(&mut nobody), Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Writes some of `bytes`; adds to `moved` how many bytes, under TLS: of ciphertext, the kernel took.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        moved: &mut usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            ClientStream::Plain(tcp) => {
                let count = ready!(Pin::new(tcp).poll_write(cx, bytes))?;
                *moved += count;
                Poll::Ready(Ok(count))
            }
            ClientStream::Tls(tls) => tls.poll_write(cx, bytes, moved),
        }
    }

    /// As [`ClientStream::poll_write`], of `slices`, one after the other; under TLS, of the first that is not empty.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        moved: &mut usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            ClientStream::Plain(tcp) => {
                let count = ready!(Pin::new(tcp).poll_write_vectored(cx, slices))?;
                *moved += count;
                Poll::Ready(Ok(count))
            }
            ClientStream::Tls(tls) => tls.poll_write(cx, first(slices), moved),
        }
    }

    /// As [`ClientStream::poll_write_vectored`], but asks the kernel, and not the runtime, whether there is room.
    pub fn try_write_vectored(&mut self, slices: &[IoSlice<'_>], moved: &mut usize) -> io::Result<usize> {
        match self {
            ClientStream::Plain(tcp) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let count = rustix::net::sendmsg(&*tcp, slices, &mut SendAncillaryBuffer::default(), flags)?;
                *moved += count;
                Ok(count)
            }
            ClientStream::Tls(tls) => tls.try_write(first(slices), moved),
        }
    }

    /// Has the client see that an answer which only its end would end was not whole. Under TLS it sees that already:
    /// nobody has said that this is the end.
    pub fn reset(&mut self) {
        if let ClientStream::Plain(tcp) = self {
            // A connection that has ended by itself needs none.
            let _ = sys::reset::reset(&*tcp);
        }
    }

    /// Ready once the kernel has all that was written.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>, moved: &mut usize) -> Poll<io::Result<()>> {
        match self {
            ClientStream::Plain(_) => Poll::Ready(Ok(())),
            ClientStream::Tls(tls) => tls.poll_flush(cx, moved),
        }
    }
}

/// The first slice that is not empty.
fn first<'a>(slices: &'a [IoSlice<'_>]) -> &'a [u8] {
    slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice)
}

/// For what takes a connection over as a stream of bytes: a tunnel.
impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ClientStream::poll_read(self.get_mut(), cx, out)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ClientStream::poll_write(self.get_mut(), cx, bytes, &mut 0)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ClientStream::poll_flush(self.get_mut(), cx, &mut 0)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(ClientStream::poll_flush(this, cx, &mut 0))?;
        Pin::new(this.tcp()).poll_shutdown(cx)
    }
}

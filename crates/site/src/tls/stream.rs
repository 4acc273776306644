//! A connection under TLS: records in, records out, and no buffer while it is idle.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: all bytes of the connection; rustls reads them.
//! Must never: wait, keep a buffer that is empty, or say that an answer ended which did not.
//!
//! Records are decrypted and encrypted in two buffers that all connections share. A connection keeps, for as long as
//! it must, the part of a record that has come, what was decrypted and not yet read, and what was encrypted and not
//! yet taken by the kernel.

mod beginning;
mod record;
mod signature;

use std::cell::{OnceCell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::HeaderValue;
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use crate::connection::turn;
use beginning::{HandshakeRestart, unavailable_signer_of};

/// LIMIT: bytes of a record, or of a handshake message, that are kept until the rest has come: what rustls allows
/// with buffers of its own; a chain of certificates has a few KiB.
const INCOMING_BYTES: usize = 64 << 10;

/// LIMIT: bytes encrypted before the kernel must have taken them: two records, so that a client that does not read
/// holds little, and one that does costs a system call for each 32 KiB.
pub(crate) const STEP_BYTES: usize = 32 << 10;

/// LIMIT: of what TLS itself has to say, so much may wait for the kernel before nothing more is read.
const UNSENT_BYTES: usize = 32 << 10;

/// LIMIT: reads that bring nothing before others have their turn.
const FILLS_MAX: u32 = 4;

/// The bytes that encryption adds to [`STEP_BYTES`], in two or three records.
const OVERHEAD_BYTES: usize = 512;

thread_local! {
    /// For records that arrive; a worker has one thread.
    static ARRIVING: RefCell<Box<[u8]>> = RefCell::new(vec![0; INCOMING_BYTES].into());
}

/// The receiver of failures of connections.
pub(crate) trait FailureWatch {
    /// It failed for this reason, in the handshake or after it.
    fn failed(&self, peer: SocketAddr, error: &rustls::Error);
}

/// How far the client's side has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// The client has said that nothing more comes, or has just gone.
    Closed,
    Failed,
}

/// A connection under TLS.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    connection: UnbufferedServerConnection,
    /// Until the handshake is done.
    beginning: Option<Box<HandshakeRestart>>,
    /// The bytes of a record so far.
    incoming: Vec<u8>,
    /// Decrypted; read up to `read`.
    plain: Vec<u8>,
    read: usize,
    /// Encrypted; taken by the kernel up to `written`.
    outgoing: Vec<u8>,
    written: usize,
    end: End,
    peer: SocketAddr,
    watch: Rc<dyn FailureWatch>,
    /// See [`TlsStream::client_certificate`].
    shown: OnceCell<Option<HeaderValue>>,
}

fn failure(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl TlsStream {
    /// A connection that begins with a ClientHello; `preread` was read from it already.
    pub fn new(
        tcp: TcpStream,
        config: Arc<ServerConfig>,
        preread: &[u8],
        peer: SocketAddr,
        watch: Rc<dyn FailureWatch>,
    ) -> Result<Self, rustls::Error> {
        let mut stream = Self {
            tcp,
            connection: UnbufferedServerConnection::new(config.clone())?,
            beginning: Some(HandshakeRestart::new(config)),
            incoming: Vec::new(),
            plain: Vec::new(),
            read: 0,
            outgoing: Vec::new(),
            written: 0,
            end: End::Open,
            peer,
            watch,
            shown: OnceCell::new(),
        };
        if !preread.is_empty() {
            let mut preread = preread.to_vec();
            let used = stream.process(&mut preread);
            stream.incoming = preread.split_off(used);
        }
        Ok(stream)
    }

    /// The socket below.
    pub fn tcp(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    /// Whether the client chose HTTP/2, for which it is asked once the handshake is done.
    pub fn is_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(b"h2")
    }

    /// The certificate that the client has shown, as it is passed on; asked once the handshake is done, and the same
    /// from then on. One of a session that is taken up comes from its ticket.
    pub fn client_certificate(&self) -> Option<HeaderValue> {
        let read = || Some(certificate::header_value(self.connection.peer_certificates()?.first()?));
        self.shown.get_or_init(read).clone()
    }

    /// Whether bytes wait for the kernel.
    pub fn unsent(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Ready once the handshake is done, or has failed.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut fills = 0;
        loop {
            ready!(self.poll_signature(cx));
            let flushed = self.poll_flush(cx, &mut 0)?;
            match self.end {
                End::Open if self.connection.is_handshaking() => {}
                End::Open => {
                    self.beginning = None;
                    return Poll::Ready(Ok(()));
                }
                End::Closed => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                End::Failed => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            if flushed.is_pending() && self.outgoing.len() > UNSENT_BYTES {
                return Poll::Pending;
            }
            ready!(self.poll_more(cx, &mut fills))?;
        }
    }

    /// Whether the client has gone; `watch` is cleared once it has sent more instead.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>, watch: &mut bool) -> bool {
        let mut fills = 0;
        loop {
            if self.read < self.plain.len() {
                *watch = false;
                return false;
            }
            if self.end != End::Open {
                return true;
            }
            match self.poll_more(cx, &mut fills) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return true,
            }
        }
    }

    /// Reads decrypted bytes; none at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut fills = 0;
        loop {
            if self.read < self.plain.len() {
                let count = out.remaining().min(self.plain.len() - self.read);
                out.put_slice(&self.plain[self.read..self.read + count]);
                self.read += count;
                if self.read == self.plain.len() {
                    (self.plain, self.read) = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(()));
            }
            match self.end {
                End::Open => {}
                End::Closed => return Poll::Ready(Ok(())),
                End::Failed => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            // TLS's own messages must not wait for an answer.
            if self.unsent()
                && self.poll_flush(cx, &mut 0)?.is_pending()
                && self.outgoing.len() > UNSENT_BYTES
            {
                return Poll::Pending;
            }
            ready!(self.poll_more(cx, &mut fills))?;
        }
    }

    /// As `poll_fill`, but for a few times in a turn: nothing may be in what came.
    fn poll_more(&mut self, cx: &mut Context<'_>, fills: &mut u32) -> Poll<io::Result<()>> {
        if *fills == FILLS_MAX {
            return turn::end(cx);
        }
        *fills += 1;
        self.poll_fill(cx)
    }

    /// Reads records and decrypts them.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ARRIVING.with_borrow_mut(|buffer| {
            let held = self.incoming.len();
            if held >= buffer.len() {
                self.end = End::Failed;
                return Poll::Ready(Err(failure("a handshake message that is too long")));
            }
            buffer[..held].copy_from_slice(&self.incoming);
            let mut room = ReadBuf::new(&mut buffer[held..]);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut room))?;
            let filled = held + room.filled().len();
            if filled == held {
                self.end = End::Closed;
                return Poll::Ready(Ok(()));
            }
            let used = self.process(&mut buffer[..filled]);
            if used == filled {
                self.incoming = Vec::new();
            } else {
                self.incoming.clear();
                self.incoming.extend_from_slice(&buffer[used..filled]);
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Works off all whole records in `records`; tells how many bytes are used up.
    fn process(&mut self, records: &mut [u8]) -> usize {
        let Self { connection, plain, outgoing, beginning, .. } = self;
        beginning.take_if(|beginning| !beginning.keep(records));
        let (mut used, said_before) = (0, outgoing.len());
        let mut error = None;
        // After an error, rustls is asked once more, for the alert; what it failed at must not be shown to it again.
        let mut last = false;
        while !last {
            last = error.is_some();
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut records[used..]);
            used += discard;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        used += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(outgoing, |room| data.encode(room).ok())
                }
                // It goes out in the order in which it was made, with the next flush.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.end = End::Closed,
                Ok(_) => break,
                Err(first) => {
                    if let Some((beginning, signer)) = beginning.as_mut().zip(unavailable_signer_of(&first)) {
                        outgoing.truncate(said_before);
                        beginning.wait_for(signer);
                        return records.len();
                    }
                    error.get_or_insert(first);
                }
            }
        }
        if let Some(beginning) = beginning {
            beginning.has_read(records.len() - used, outgoing.len() - said_before);
        }
        if let Some(error) = error {
            self.end = End::Failed;
            self.flush_now();
            self.watch.failed(self.peer, &error);
            // Nothing of it is of use any more.
            return records.len();
        }
        used
    }
}

/// Appends what `encode` makes of the room it gets.
fn append(outgoing: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Option<usize>) {
    // A message of the handshake has one record, mostly, but a chain of certificates can take several.
    let start = outgoing.len();
    let mut room = 2 << 10;
    loop {
        outgoing.resize(start + room, 0);
        if let Some(count) = encode(&mut outgoing[start..]) {
            outgoing.truncate(start + count);
            return;
        }
        room *= 2;
        if room > INCOMING_BYTES {
            outgoing.truncate(start);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_gets_the_room_that_it_needs_up_to_a_limit() {
        for (needed, expected) in
            [(10, 13), (60_000, 60_003), (INCOMING_BYTES, INCOMING_BYTES + 3), (INCOMING_BYTES + 1, 3)]
        {
            let (mut outgoing, mut largest) = (b"abc".to_vec(), 0);
            append(&mut outgoing, |room| {
                largest = largest.max(room.len());
                (room.len() >= needed).then_some(needed)
            });
            assert_eq!((outgoing.len(), &outgoing[..3]), (expected, &b"abc"[..]), "{needed}");
            assert!(largest <= INCOMING_BYTES);
        }
    }
}

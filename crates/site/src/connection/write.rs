//! Sending what does not go out in one call: the rest of an answer, and whole files.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: how fast the client reads. Must never: wait
//! for a client that takes nothing or too little, or let one fast client keep the others waiting.

use std::io;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::net::TcpStream;

use crate::connection::min_rate::{self, TransferPace};
use crate::connection::socket::ConnectionSocket;
use crate::connection::state::{ClientConnection, NextStep, Partial, Sending};
use crate::connection::stream::ClientStream;
use crate::tls::stream::{STEP_BYTES, TlsStream};

/// LIMIT: bytes of a file sent before others have their turn, about 0.2 ms of copying.
const TURN_BYTES: u64 = 1 << 20;

impl ClientConnection<'_> {
    /// Writes all of `bytes` to a client that is fast enough.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Option<()> {
        let mut stream = self.lend()?;
        let pace = self.takes();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match &mut stream {
            ClientStream::Plain(tcp) => {
                while !bytes.is_empty() {
                    let written = min_rate::push(tcp, &pace, || rustix::net::send(&*tcp, bytes, flags)).await;
                    bytes = &bytes[written.map_err(|error| self.note(&error)).ok()?..];
                }
            }
            ClientStream::Tls(tls) => {
                tls.write(bytes, &pace).await.map_err(|error| self.note(&error)).ok()?
            }
        }
        self.socket = Some(ConnectionSocket::Registered(stream));
        Some(())
    }

    /// Counts a client that was too slow.
    fn note(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.site.shed.note(|shed| shed.slow_response += 1);
        }
    }

    /// Sends what the fast path could not.
    pub(crate) async fn finish_write(&mut self, partial: Partial) -> NextStep {
        if self.write(&partial.rest).await.is_none() {
            return NextStep::Close;
        }
        self.record_later(Some(&partial.logged), partial.status, partial.body_bytes);
        if partial.keep { self.go_on() } else { NextStep::Close }
    }

    /// Sends a file, in plaintext from the page cache to the socket.
    pub(crate) async fn send_file(&mut self, sending: Sending) -> NextStep {
        let is_tls = self.socket.as_ref().is_some_and(|socket| socket.plain().is_none());
        let (sent, whole) = if is_tls {
            self.seal(&sending).await
        } else {
            match self.lead(&sending).await {
                Some(()) => self.push(&sending).await,
                None => (0, false),
            }
        };
        self.record_later(Some(&sending.logged), 200, sent);
        if whole && sending.keep { self.go_on() } else { NextStep::Close }
    }

    /// Sends the head; it may wait in the kernel for the first bytes of the file.
    async fn lead(&mut self, sending: &Sending) -> Option<()> {
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, sending.size > 0);
        let sent = match rustix::net::send(self.socket.as_ref()?.plain()?, &sending.lead, flags) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            other => other.ok()?,
        };
        match &sending.lead[sent..] {
            [] => Some(()),
            rest => self.write(rest).await,
        }
    }

    /// Tells how many bytes were sent, and whether that was all.
    async fn push(&mut self, sending: &Sending) -> (u64, bool) {
        if sending.size == 0 {
            return (0, true);
        }
        let pace = self.takes();
        let mut offset = 0;
        let Some(ClientStream::Plain(stream)) = self.lend() else {
            return (0, false);
        };
        while offset < sending.size {
            if let Err(error) = step(&stream, sending, &mut offset, &pace).await {
                self.note(&error);
                return (offset, false);
            }
        }
        self.socket = Some(ConnectionSocket::Registered(ClientStream::Plain(stream)));
        (offset, true)
    }

    /// Reads the file piece by piece, and encrypts it; tells how many bytes were sent, and whether that was all.
    async fn seal(&mut self, sending: &Sending) -> (u64, bool) {
        let pace = self.takes();
        let Some(ClientStream::Tls(mut tls)) = self.lend() else {
            return (0, false);
        };
        let mut piece = Vec::with_capacity(STEP_BYTES);
        piece.extend_from_slice(&sending.lead);
        let (mut offset, mut turn) = (0, 0);
        loop {
            let before = offset;
            if let Err(error) = seal_step(&mut tls, sending, &mut piece, &mut offset, &pace).await {
                self.note(&error);
                return (before, false);
            }
            if offset == sending.size {
                break;
            }
            turn += offset - before;
            if turn >= TURN_BYTES {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        self.socket = Some(ConnectionSocket::Registered(ClientStream::Tls(tls)));
        (offset, true)
    }
}

/// Fills `piece` from the file and sends it, once the client has taken what was sent before.
async fn seal_step(
    tls: &mut TlsStream,
    sending: &Sending,
    piece: &mut Vec<u8>,
    offset: &mut u64,
    pace: &TransferPace,
) -> io::Result<()> {
    let end = STEP_BYTES.min(piece.len() + usize::try_from(sending.size - *offset).unwrap_or(STEP_BYTES));
    while piece.len() < end {
        let start = piece.len();
        piece.resize(end, 0);
        let read = match rustix::io::pread(&sending.file.fd, &mut piece[start..], *offset) {
            Err(Errno::INTR) => 0,
            // The file became shorter than was announced.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            other => other?,
        };
        piece.truncate(start + read);
        *offset += read as u64;
    }
    tls.write(piece, pace).await?;
    piece.clear();
    Ok(())
}

/// Sends what the socket takes, once it takes some.
async fn step(
    stream: &TcpStream,
    sending: &Sending,
    offset: &mut u64,
    pace: &TransferPace,
) -> io::Result<()> {
    let count = (sending.size - *offset).min(TURN_BYTES) as usize;
    let file = &sending.file.fd;
    match min_rate::push(stream, pace, || rustix::fs::sendfile(stream, file, Some(offset), count)).await? {
        // The file became shorter than was announced.
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => {
            tokio::task::yield_now().await;
            Ok(())
        }
    }
}

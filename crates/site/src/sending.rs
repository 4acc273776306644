//! Sending what does not go out in one call: the rest of an answer, and whole files.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: how fast the client reads. Must never: wait
//! for a client that takes nothing, or let one fast client keep the others waiting.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::files::File;
use crate::head::{self, Checked};
use crate::partition::Partition;
use crate::serve::{Link, Next};
use crate::socket::Socket;

/// LIMIT: bytes of a file sent before others have their turn, about 0.2 ms of copying.
const TURN_BYTES: u64 = 1 << 20;

/// An answer of the fast path that the socket did not take at once.
pub(crate) struct Partial {
    pub rest: Vec<u8>,
    pub head: Vec<u8>,
    pub status: u16,
    pub body_bytes: u64,
    pub keep: bool,
}

/// A file to be sent whole.
pub(crate) struct Sending {
    /// The head of the answer.
    pub lead: Vec<u8>,
    pub file: File,
    /// Bytes of it to send; none for `HEAD`.
    pub size: u64,
    /// The head of the request.
    pub head: Vec<u8>,
    pub keep: bool,
}

impl<P: Partition> Link<'_, P> {
    /// Writes all of `bytes` to a client that takes some of them in every `stall_timeout`.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Option<()> {
        let mut stream = self.lend()?;
        let stall = self.site.partition.limits().stall_timeout;
        while !bytes.is_empty() {
            let written = tokio::time::timeout(stall, stream.write(bytes)).await.ok()?.ok()?;
            bytes = &bytes[written..];
        }
        self.socket = Some(Socket::Registered(stream));
        Some(())
    }

    /// Sends what the fast path could not.
    pub(crate) async fn finish_write(&mut self, partial: Partial) -> Next {
        if self.write(&partial.rest).await.is_none() {
            return Next::Close;
        }
        if let Checked::Whole(head) = head::check(&partial.head, usize::MAX) {
            self.record(Some(&head), partial.status, partial.body_bytes);
        }
        if partial.keep { self.go_on() } else { Next::Close }
    }

    /// Sends a file, from the page cache to the socket.
    pub(crate) async fn send_file(&mut self, sending: Sending) -> Next {
        let (sent, whole) = match self.lead(&sending).await {
            Some(()) => self.push(&sending).await,
            None => (0, false),
        };
        if let Checked::Whole(head) = head::check(&sending.head, usize::MAX) {
            self.record(Some(&head), 200, sent);
        }
        if whole && sending.keep { self.go_on() } else { Next::Close }
    }

    /// Sends the head; it may wait in the kernel for the first bytes of the file.
    async fn lead(&mut self, sending: &Sending) -> Option<()> {
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, sending.size > 0);
        let sent = match rustix::net::send(self.socket.as_ref()?.fd(), &sending.lead, flags) {
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
        let stall = self.site.partition.limits().stall_timeout;
        let mut offset = 0;
        let Some(stream) = self.lend() else {
            return (0, false);
        };
        while offset < sending.size {
            if step(&stream, sending, &mut offset, stall).await.is_err() {
                return (offset, false);
            }
        }
        self.socket = Some(Socket::Registered(stream));
        (offset, true)
    }
}

/// Sends what the socket takes, or waits until it takes some.
async fn step(stream: &TcpStream, sending: &Sending, offset: &mut u64, stall: Duration) -> io::Result<()> {
    let count = (sending.size - *offset).min(TURN_BYTES) as usize;
    let sent = stream.try_io(Interest::WRITABLE, || {
        Ok(rustix::fs::sendfile(stream, &sending.file.fd, Some(offset), count)?)
    });
    match sent {
        // The file became shorter than was announced.
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {
            tokio::task::yield_now().await;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => timeout(stall, stream.writable()).await?,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
    }
}

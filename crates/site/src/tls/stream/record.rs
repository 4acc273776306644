//! Encrypts the bytes that leave a connection under TLS, and has the kernel take them.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: how fast the client reads. Must never: encrypt more
//! than [`STEP_BYTES`] for a client that takes nothing.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::SendFlags;
use rustls::unbuffered::{ConnectionState, EncryptError, UnbufferedStatus};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::{End, OVERHEAD_BYTES, STEP_BYTES, TlsStream, append, failure};
use crate::connection::min_rate::{self, TransferPace};

thread_local! {
    /// For records that leave.
    static LEAVING: RefCell<Vec<u8>> = RefCell::new(vec![0; STEP_BYTES + OVERHEAD_BYTES]);
    /// For bytes from several places that go into one record.
    static GATHERED: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(STEP_BYTES));
}

type Traffic<'c> = rustls::unbuffered::WriteTraffic<'c, rustls::server::ServerConnectionData>;

fn send(tcp: &TcpStream, bytes: &[u8]) -> rustix::io::Result<usize> {
    loop {
        match rustix::net::send(tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

impl TlsStream {
    /// Encrypts `plain`, at most [`STEP_BYTES`] of it, and has the kernel take what it can at once; the rest is kept.
    /// Tells how many bytes were encrypted, and adds to `moved` how many the kernel has taken.
    pub fn push(&mut self, plain: &[u8], moved: &mut usize) -> io::Result<usize> {
        let plain = &plain[..plain.len().min(STEP_BYTES)];
        LEAVING.with_borrow_mut(|room| {
            let count = self.encrypt(room, |traffic, room| traffic.encrypt(plain, room))?;
            let mut sent = 0;
            if !self.unsent() {
                match send(&self.tcp, &room[..count]) {
                    Ok(count) => sent = count,
                    Err(rustix::io::Errno::AGAIN) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            *moved += sent;
            self.outgoing.extend_from_slice(&room[sent..count]);
            Ok(plain.len())
        })
    }

    fn encrypt(
        &mut self,
        room: &mut Vec<u8>,
        mut encrypt: impl FnMut(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> io::Result<usize> {
        if self.end == End::Failed {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Self { connection, plain, outgoing, incoming, .. } = self;
        loop {
            // INVARIANT: `incoming` holds no whole record, so nothing but the state is looked at.
            let UnbufferedStatus { discard, state } = connection.process_tls_records(incoming);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => match encrypt(&mut traffic, room) {
                    Ok(count) => return Ok(count),
                    Err(EncryptError::InsufficientSize(size)) => room.resize(size.required_size, 0),
                    Err(error) => return Err(failure(error)),
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(outgoing, |room| data.encode(room).ok())
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.end = End::Closed,
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(_) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(error) => return Err(failure(error)),
            }
            incoming.drain(..discard);
        }
    }

    /// Encrypts the bytes of `slices` one after the other, until the kernel takes no more; tells how many were
    /// encrypted.
    pub fn push_all(&mut self, slices: &[&[u8]]) -> io::Result<usize> {
        GATHERED.with_borrow_mut(|gathered| {
            gathered.clear();
            let mut done = 0;
            for slice in slices {
                let mut slice = *slice;
                while !slice.is_empty() {
                    let count = slice.len().min(STEP_BYTES - gathered.len());
                    gathered.extend_from_slice(&slice[..count]);
                    slice = &slice[count..];
                    if gathered.len() == STEP_BYTES {
                        done += self.push(gathered, &mut 0)?;
                        gathered.clear();
                        if self.unsent() {
                            return Ok(done);
                        }
                    }
                }
            }
            if !gathered.is_empty() {
                done += self.push(gathered, &mut 0)?;
            }
            Ok(done)
        })
    }

    /// Has the kernel take what it can, without asking the runtime.
    pub(super) fn flush_now(&mut self) -> usize {
        let sent = match self.unsent() {
            true => send(&self.tcp, &self.outgoing[self.written..]).unwrap_or(0),
            false => 0,
        };
        self.took(sent);
        sent
    }

    fn took(&mut self, count: usize) {
        self.written += count;
        if !self.unsent() && self.written > 0 {
            (self.outgoing, self.written) = (Vec::new(), 0);
        }
    }

    /// Ready once the kernel has taken everything; adds to `moved` what it took.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>, moved: &mut usize) -> Poll<io::Result<()>> {
        while self.unsent() {
            let polled = Pin::new(&mut self.tcp).poll_write(cx, &self.outgoing[self.written..]);
            let count = ready!(polled)?;
            *moved += count;
            self.took(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts some of `bytes` once the kernel has taken what was encrypted before.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        moved: &mut usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx, moved))?;
        Poll::Ready(self.push(bytes, moved))
    }

    /// As [`TlsStream::poll_write`], but asks the kernel, and not the runtime, whether there is room.
    pub fn try_write(&mut self, bytes: &[u8], moved: &mut usize) -> io::Result<usize> {
        *moved += self.flush_now();
        match self.unsent() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false if bytes.is_empty() => Ok(0),
            false => self.push(bytes, moved),
        }
    }

    /// Waits until a client that is fast enough has taken everything.
    pub async fn flush(&mut self, pace: &TransferPace) -> io::Result<()> {
        while self.unsent() {
            let (tcp, rest) = (&self.tcp, &self.outgoing[self.written..]);
            let count = min_rate::push(tcp, pace, || send(tcp, rest)).await?;
            self.took(count);
        }
        Ok(())
    }

    /// Sends all of `bytes` to a client that is fast enough.
    pub async fn write(&mut self, bytes: &[u8], pace: &TransferPace) -> io::Result<()> {
        self.flush(pace).await?;
        for piece in bytes.chunks(STEP_BYTES) {
            let mut moved = 0;
            self.push(piece, &mut moved)?;
            if moved > 0 {
                pace.moved(moved);
            }
            self.flush(pace).await?;
        }
        Ok(())
    }

    /// Tells the client that all has been said, if the kernel takes that at once.
    pub fn close(&mut self) {
        if self.end == End::Failed || self.connection.is_handshaking() {
            return;
        }
        let mut alert = vec![0; OVERHEAD_BYTES];
        if let Ok(count) = self.encrypt(&mut alert, |traffic, room| traffic.queue_close_notify(room)) {
            self.outgoing.extend_from_slice(&alert[..count]);
            self.flush_now();
        }
    }
}

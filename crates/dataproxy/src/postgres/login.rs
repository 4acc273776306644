//! Checks the server's questions at the login: the server must not ask for the password as it is, or for a proof that
//! gives the password away. Notes the number of the server's process.
//!
//! Sees: what the server says, or whoever is in its place. Never: lets a client that would obey learn of such a
//! question.
//!
//! `tokio-postgres` answers it, whatever the connection is. Behind a connection without TLS there may be anybody: MD5
//! of a password is guessed fast, and is a password itself for who has it. Behind a Unix socket there is who may make
//! it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use worker::server_stream::ServerStream;

/// `Authentication...`, of which the first 4 bytes say which one (PostgreSQL's documentation, "Message Formats").
const AUTHENTICATION: u8 = b'R';
const CLEARTEXT_PASSWORD: [u8; 4] = 3_u32.to_be_bytes();
const MD5_PASSWORD: [u8; 4] = 5_u32.to_be_bytes();
/// `BackendKeyData`: the process of the server, and what it is stopped with.
const KEY: u8 = b'K';
/// `ReadyForQuery`: the login is over.
const READY: u8 = b'Z';
/// A message's kind and length, and which authentication it is.
const HEAD: usize = 9;

/// A connection on which nobody is told to send a password as it is.
pub(super) struct GuardedStream {
    stream: ServerStream,
    login: Option<Login>,
}

/// Which process of the server has a connection, once it is said where that is seen: not within TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct BackendPid(Arc<AtomicU32>);

impl BackendPid {
    pub(super) fn get(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }
}

/// The messages of a login, which come in pieces.
#[derive(Default)]
struct Login {
    /// Nobody but who may make the socket of the server is there.
    is_local: bool,
    backend: BackendPid,
    head: Vec<u8>,
    /// Bytes of the message that have no meaning here.
    left: usize,
}

impl GuardedStream {
    /// `is_secured`: what goes over it is TLS, which has been shown to be the server's.
    pub(super) fn new(stream: ServerStream, is_secured: bool) -> Self {
        let is_local = matches!(stream, ServerStream::Unix(_));
        let login = Login { is_local, ..Login::default() };
        Self { stream, login: (!is_secured).then_some(login) }
    }

    /// Which process of the server has it, later.
    pub(super) fn backend(&self) -> BackendPid {
        self.login.as_ref().map(|login| login.backend.clone()).unwrap_or_default()
    }

    /// The connection itself.
    pub(super) fn into_inner(self) -> ServerStream {
        self.stream
    }
}

impl Login {
    /// Takes what has come; whether the login is over.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                (self.left, bytes) = (self.left - skipped, &bytes[skipped..]);
                continue;
            }
            let (byte, rest) = (bytes[0], &bytes[1..]);
            self.head.push(byte);
            bytes = rest;
            if self.is_over()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks at the head of a message, once all of it is there.
    fn is_over(&mut self) -> io::Result<bool> {
        let Some(length) = self.head.get(1..5) else { return Ok(false) };
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let needed = if matches!(self.head[0], AUTHENTICATION | KEY) { HEAD.min(length + 1) } else { 5 };
        if self.head.len() < needed {
            return Ok(false);
        }
        let asked = self.head.get(5..HEAD).filter(|_| self.head[0] == AUTHENTICATION);
        if asked == Some(&CLEARTEXT_PASSWORD) {
            let rule = "it asks for the password as it is: let `pg_hba.conf` say `scram-sha-256` for this user, or \
                speak TLS by `server_ca`";
            return Err(io::Error::other(rule));
        }
        if asked == Some(&MD5_PASSWORD) && !self.is_local {
            let rule = "it asks for an MD5 of the password: let `password_encryption` and `pg_hba.conf` say \
                `scram-sha-256` for this user and set its password again, or speak TLS by `server_ca`";
            return Err(io::Error::other(rule));
        }
        if let (KEY, Some(pid)) = (self.head[0], self.head.get(5..HEAD)) {
            self.backend.0.store(u32::from_be_bytes([pid[0], pid[1], pid[2], pid[3]]), Ordering::Relaxed);
        }
        let is_over = self.head[0] == READY;
        self.left = (length + 1).saturating_sub(self.head.len());
        self.head.clear();
        Ok(is_over)
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let (Poll::Ready(Ok(())), Some(login)) = (&read, &mut self.login) {
            match login.take(&buffer.filled()[before..]) {
                Ok(true) => self.login = None,
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        read
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &length, content].concat()
    }

    /// Whether the login is over and which process has it, or why it is refused, if the bytes come in pieces of this
    /// size.
    fn said(bytes: &[u8], piece: usize, is_local: bool) -> Result<(bool, Option<u32>), String> {
        let mut login = Login { is_local, ..Login::default() };
        for piece in bytes.chunks(piece) {
            if login.take(piece).map_err(|error| error.to_string())? {
                return Ok((true, login.backend.get()));
            }
        }
        Ok((false, login.backend.get()))
    }

    #[test]
    fn a_password_is_not_sent_as_it_is_or_as_its_md5() {
        let notice = message(b'N', b"SNOTICE\0R\0\0\0\x08\0\0\0\x03\0");
        let sasl = message(AUTHENTICATION, b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        let (ok, cleartext) =
            (message(AUTHENTICATION, &[0; 4]), message(AUTHENTICATION, &CLEARTEXT_PASSWORD));
        let md5 = message(AUTHENTICATION, &[&MD5_PASSWORD[..], b"salt"].concat());
        let (key, ready) = (message(KEY, b"\0\0\x01\x02\0\0\0\x09"), message(READY, b"I"));
        for piece in 1..40 {
            let whole = [&*notice, &sasl, &ok, &notice, &key, &ready].concat();
            assert_eq!(said(&whole, piece, false), Ok((true, Some(258))), "{piece}");
            assert_eq!(said(&[&*notice, &sasl, &ok].concat(), piece, false), Ok((false, None)), "{piece}");
            for before in [&[][..], &notice, &sasl] {
                for is_local in [true, false] {
                    let refused = said(&[before, &cleartext, &ok].concat(), piece, is_local);
                    assert!(refused.is_err_and(|why| why.contains("scram-sha-256")), "{piece}");
                }
                let asked = [before, &md5, &ok].concat();
                assert!(said(&asked, piece, false).is_err_and(|why| why.contains("MD5")), "{piece}");
                assert_eq!(said(&asked, piece, true), Ok((false, None)), "{piece}");
            }
            // A message that is shorter than its length claims: the client takes no more of it, either.
            assert_eq!(said(&message(AUTHENTICATION, b"\0\0"), piece, false), Ok((false, None)), "{piece}");
        }
    }
}

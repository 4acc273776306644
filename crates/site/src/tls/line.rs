//! The channel to the signer: certificates come on it, and signatures when they are asked for.
//!
//! Runs in: the site worker. Sees: messages of the signer, which is more trusted. Never: waits for a signature longer
//! than its deadline.
//!
//! rustls asks for a signature in the middle of a call and wants it at once, so the worker stands still for it: as it
//! would if it signed itself, and two messages longer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Notify;
use wire::tls::{CERTIFICATE_MAX, SIGNED_MAX, SignerToSite, SiteToSigner};
use wire::{Bytes, Message};

use super::keys::{Keys, Part};

/// LIMIT: a signature takes 0.1 ms, RSA with 4096 bits 3 ms; a signer that does not answer in this time hangs.
const SIGN_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest message is a certificate with its numbers.
const MESSAGE_BYTES: usize = CERTIFICATE_MAX + 64;

/// The channel.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
    keys: Weak<Keys>,
    state: Mutex<State>,
    /// Something is to be seen to by who attends to the channel.
    stir: Notify,
}

#[derive(Debug)]
struct State {
    ticket: u32,
    gone: bool,
    buffer: Vec<u8>,
}

/// Attends to a channel until the signer is gone; must be called inside the runtime.
pub fn attend(socket: OwnedFd, keys: Arc<Keys>) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    let watched = worker::watch(socket.try_clone()?)?;
    let line = Arc::new(Line {
        socket,
        keys: Arc::downgrade(&keys),
        state: Mutex::new(State { ticket: 0, gone: false, buffer: vec![0; MESSAGE_BYTES] }),
        stir: Notify::new(),
    });
    tokio::task::spawn_local(async move {
        while !line.state().gone {
            tokio::select! {
                ready = watched.readable() => match ready {
                    Ok(mut ready) => if line.hear_all().is_ok() {
                        ready.clear_ready();
                    },
                    Err(_) => break,
                },
                () = line.stir.notified() => {}
            }
        }
        keys.forget(&line);
    });
    Ok(())
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what there is; an answer that nobody waits for any more is dropped.
    fn hear_all(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state();
        loop {
            match self.hear(&mut state) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Hears one message; certificates are put where they belong.
    fn hear(self: &Arc<Self>, state: &mut State) -> io::Result<Option<SignerToSite>> {
        let got = match sys::seqpacket::receive(&self.socket, &mut state.buffer) {
            Ok(Some(got)) => SignerToSite::decode(&state.buffer[..got.len]).map_err(io::Error::other),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        };
        match got {
            Ok(SignerToSite::Certificate { number, version, kind, index, count, der }) => {
                let part = Part { number, version, kind, index, count, der: der.0 };
                self.keys.upgrade().inspect(|keys| keys.take(self, part));
                Ok(None)
            }
            Ok(answer) => Ok(Some(answer)),
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    state.gone = true;
                    self.stir.notify_one();
                }
                Err(error)
            }
        }
    }

    /// Has a message signed, now.
    pub fn sign(
        self: &Arc<Self>,
        number: u16,
        version: u32,
        scheme: u16,
        message: &[u8],
    ) -> io::Result<Vec<u8>> {
        if message.len() > SIGNED_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let deadline = Instant::now() + SIGN_TIMEOUT;
        let mut state = self.state();
        state.ticket = state.ticket.wrapping_add(1);
        let own = state.ticket;
        let question =
            SiteToSigner::Sign { ticket: own, number, version, scheme, message: Bytes(message.to_vec()) };
        let mut bytes = Vec::with_capacity(message.len() + 32);
        question.encode(&mut bytes);
        while let Err(error) = sys::seqpacket::send(&self.socket, &bytes, None) {
            match error.kind() {
                io::ErrorKind::WouldBlock => self.wait(PollFlags::OUT, deadline)?,
                _ => {
                    state.gone = true;
                    self.stir.notify_one();
                    return Err(error);
                }
            }
        }
        loop {
            match self.hear(&mut state) {
                Ok(Some(SignerToSite::Signed { ticket, signature })) if ticket == own => {
                    return Ok(signature.0);
                }
                Ok(Some(SignerToSite::Refused { ticket })) if ticket == own => {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                // A certificate, or the answer to a question that was given up.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN, deadline)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

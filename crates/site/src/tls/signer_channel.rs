//! The channel to the signer: certificates come on it, and signatures when they are asked for.
//!
//! Runs in: the site worker. Sees: messages of the signer, which is more trusted, and costs the site its TLS if it is
//! taken over. Never: waits for a signature longer than its deadline, whatever else the signer says.
//!
//! rustls asks for a signature in the middle of a call and wants it at once, so the worker stands still for it: as it
//! would if it signed itself, and two messages longer. It does so for a moment only. After that the handshake is given
//! up where it is, as nothing of it has been sent, and begins again with the same bytes once the signer answers, or
//! another one is there.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Notify;
use wire::tls::{CERTIFICATE_MAX, KeyKind, SIGNED_MAX, SignerToSite, SiteToSigner};
use wire::{Bytes, Message};

/// LIMIT: how long a worker stands still for a signature: one takes 0.1 ms, with RSA and 4096 bits 3 ms.
const PATIENCE: Duration = Duration::from_millis(25);
/// LIMIT: the same, of a signer that is slow: twice as long each time in a row that it was not long enough.
const PATIENCE_MAX: Duration = Duration::from_millis(400);
/// How many messages are heard before others have their turn.
const TURN: usize = 32;
/// The longest message is a certificate with its numbers.
const MESSAGE_BYTES: usize = CERTIFICATE_MAX + 64;

/// One certificate as it comes from the signer.
pub struct CertificatePart {
    pub number: u16,
    pub version: u32,
    pub kind: KeyKind,
    pub index: u8,
    pub count: u8,
    pub der: Vec<u8>,
}

/// The store of a signer's certificates.
pub trait CertificateReceiver: std::fmt::Debug + Send + Sync {
    /// Takes a part; parts of a chain come in order.
    fn take(&self, line: &Arc<SignerChannel>, part: CertificatePart);

    /// Forgets what a signer had that is gone.
    fn forget(&self, line: &Arc<SignerChannel>);

    /// Whether there are certificates here, and none of this signer.
    fn has_only_others(&self, line: &SignerChannel) -> bool;

    /// Tells all who wait that a certificate has come, or that a signer answers again or is gone.
    fn news(&self) -> &Arc<Notify>;
}

/// A signer has not answered in time, or is gone.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the signer does not answer")]
pub struct SignerUnavailable(Arc<SignerChannel>);

impl SignerUnavailable {
    /// Waits until it is worth while to ask for the signature again.
    pub async fn end(self) {
        while let Some(keys) = self.0.keys.upgrade() {
            // Taken before the wait, so that no news from here on is missed.
            let news = keys.news().clone().notified_owned();
            drop(keys);
            if self.is_over() {
                return;
            }
            news.await;
        }
    }

    fn is_over(&self) -> bool {
        let line = &self.0;
        let Some(keys) = line.keys.upgrade() else { return true };
        let state = line.state();
        if state.gone { keys.has_only_others(line) } else { !state.owes }
    }
}

/// Why there is no signature.
#[derive(Debug, thiserror::Error)]
pub enum SignFault {
    /// There may be one later.
    #[error(transparent)]
    NoAnswer(SignerUnavailable),
    /// There is none.
    #[error("the signer: {0}")]
    Failed(#[from] io::Error),
}

/// The channel.
#[derive(Debug)]
pub struct SignerChannel {
    socket: OwnedFd,
    keys: Weak<dyn CertificateReceiver>,
    state: Mutex<ChannelState>,
    /// Something is to be seen to by who attends to the channel.
    stir: Notify,
}

impl Drop for SignerChannel {
    /// Closing a channel closes the descriptors that wait in it.
    fn drop(&mut self) {
        sys::seqpacket::empty(&self.socket);
    }
}

#[derive(Debug)]
struct ChannelState {
    ticket: u32,
    gone: bool,
    /// Whether it was asked and has not answered: it is asked nothing more until it does.
    owes: bool,
    /// How long it is waited for.
    patience: Duration,
    buffer: Vec<u8>,
}

impl ChannelState {
    fn new() -> Self {
        Self { ticket: 0, gone: false, owes: false, patience: PATIENCE, buffer: vec![0; MESSAGE_BYTES] }
    }

    /// The answer to a question that was given up: others may be asked now.
    fn heard_late(&mut self, answer: &SignerToSite) -> bool {
        let (SignerToSite::Signed { ticket, .. } | SignerToSite::Refused { ticket }) = answer else {
            return false;
        };
        *ticket == self.ticket && std::mem::take(&mut self.owes)
    }
}

/// Attends to a channel until the signer is gone; must be called inside the runtime.
pub fn attend(socket: OwnedFd, keys: Arc<dyn CertificateReceiver>) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    let watched = worker::watch(socket.try_clone()?)?;
    let line = Arc::new(SignerChannel {
        socket,
        keys: Arc::downgrade(&keys),
        state: Mutex::new(ChannelState::new()),
        stir: Notify::new(),
    });
    tokio::task::spawn_local(async move {
        while !line.state().gone {
            tokio::select! {
                ready = watched.readable() => match ready {
                    Ok(mut ready) => match line.hear_some() {
                        Ok(true) => ready.clear_ready(),
                        // It may have sent without end.
                        _ => tokio::task::yield_now().await,
                    },
                    Err(_) => break,
                },
                () = line.stir.notified() => {}
            }
        }
        // The last to be closed is emptied before.
        drop(watched);
        keys.forget(&line);
        keys.news().notify_waiters();
    });
    Ok(())
}

impl SignerChannel {
    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears some of what there is, and says whether that was all; an answer that nobody waits for any more is dropped.
    fn hear_some(self: &Arc<Self>) -> io::Result<bool> {
        let mut state = self.state();
        for _ in 0..TURN {
            match self.receive_all(&mut state) {
                Ok(Some(answer)) if state.heard_late(&answer) => {
                    self.keys.upgrade().inspect(|keys| keys.news().notify_waiters());
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Hears one message; certificates are put where they belong.
    fn receive_all(self: &Arc<Self>, state: &mut ChannelState) -> io::Result<Option<SignerToSite>> {
        let got = match sys::seqpacket::receive(&self.socket, &mut state.buffer) {
            Ok(Some(sys::seqpacket::Received { descriptor: Some(descriptor), .. })) => {
                sys::foreign::leave(descriptor);
                Err(io::Error::other("a descriptor came along"))
            }
            Ok(Some(got)) => SignerToSite::decode(&state.buffer[..got.len]).map_err(io::Error::other),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        };
        match got {
            Ok(SignerToSite::Certificate { number, version, kind, index, count, der }) => {
                let part = CertificatePart { number, version, kind, index, count, der: der.0 };
                self.keys.upgrade().inspect(|keys| keys.take(self, part));
                Ok(None)
            }
            Ok(answer) => Ok(Some(answer)),
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    if matches!(error.kind(), io::ErrorKind::Other | io::ErrorKind::InvalidData) {
                        eprintln!("error: the signer sends nonsense; its channel is closed: {error}");
                    }
                    state.gone = true;
                    self.stir.notify_one();
                }
                Err(error)
            }
        }
    }

    /// Has a message signed, now.
    ///
    /// # Errors
    /// There is no signature, or none yet.
    pub fn sign(
        self: &Arc<Self>,
        number: u16,
        version: u32,
        scheme: u16,
        message: &[u8],
    ) -> Result<Vec<u8>, SignFault> {
        if message.len() > SIGNED_MAX {
            return Err(SignFault::Failed(io::ErrorKind::InvalidInput.into()));
        }
        let mut state = self.state();
        // SECURITY: whoever waits here keeps the whole site waiting, so one that hangs is not asked for each handshake.
        if state.owes || state.gone {
            return Err(SignFault::NoAnswer(SignerUnavailable(self.clone())));
        }
        let (question, begun) = ((number, version, scheme, message), Instant::now());
        let deadline = begun + state.patience;
        match self.ask(&mut state, question, deadline) {
            Ok(signature) => {
                state.patience = (begun.elapsed() * 2).clamp(PATIENCE, PATIENCE_MAX);
                Ok(signature)
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                state.owes = true;
                state.patience = (state.patience * 2).min(PATIENCE_MAX);
                Err(SignFault::NoAnswer(SignerUnavailable(self.clone())))
            }
            Err(_) if state.gone => Err(SignFault::NoAnswer(SignerUnavailable(self.clone()))),
            Err(error) => Err(SignFault::Failed(error)),
        }
    }

    /// Asks one question and waits for its answer, whatever else is heard meanwhile.
    fn ask(
        self: &Arc<Self>,
        state: &mut ChannelState,
        (number, version, scheme, message): (u16, u32, u16, &[u8]),
        deadline: Instant,
    ) -> io::Result<Vec<u8>> {
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
            match self.receive_all(state) {
                Ok(Some(SignerToSite::Signed { ticket, signature })) if ticket == own => {
                    return Ok(signature.0);
                }
                Ok(Some(SignerToSite::Refused { ticket })) if ticket == own => {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                // A certificate, or the answer to a question that was given up; but not for ever.
                Ok(_) => left(deadline).map(drop)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN, deadline)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = left(deadline)?;
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// How much time is left.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::*;

    fn line(socket: OwnedFd, keys: &Arc<Keys>) -> Arc<SignerChannel> {
        let keys: Arc<dyn CertificateReceiver> = keys.clone();
        let state = Mutex::new(ChannelState::new());
        Arc::new(SignerChannel { socket, keys: Arc::downgrade(&keys), state, stir: Notify::new() })
    }

    fn encoded(message: &SignerToSite) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    /// It might go on for ever with answers to other questions, and there would always be one more to be heard.
    #[test]
    fn other_answers_do_not_make_the_time_longer() {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let keys = Arc::new(Keys::default());
        let line = line(ours, &keys);
        let ask = |deadline| {
            let own = line.state().ticket + 1;
            for ticket in [own + 1, u32::MAX, own] {
                let signed = SignerToSite::Signed { ticket, signature: Bytes(vec![7]) };
                sys::seqpacket::send(&theirs, &encoded(&signed), None).unwrap();
            }
            line.ask(&mut line.state(), (0, 1, 0x0403, &[9; 100]), deadline)
        };
        assert_eq!(ask(Instant::now() + Duration::from_secs(2)).unwrap(), [7]);
        assert_eq!(ask(Instant::now()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    fn unavailable(result: Result<Vec<u8>, SignFault>) -> SignerUnavailable {
        match result {
            Err(SignFault::NoAnswer(signer)) => signer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_signer_that_hangs_is_not_asked_for_each_handshake() {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let keys = Arc::new(Keys::default());
        let line = line(ours, &keys);
        for _ in 0..3 {
            assert!(!unavailable(line.sign(0, 1, 0x0403, &[9; 100])).is_over());
        }
        let mut buffer = vec![0; 1024];
        assert!(sys::seqpacket::receive(&theirs, &mut buffer).unwrap().is_some());
        // Once, however often it was needed.
        assert!(sys::seqpacket::receive(&theirs, &mut buffer).is_err());
        // An answer to something else is none.
        for (ticket, is_heard) in [(7, false), (1, true)] {
            sys::seqpacket::send(&theirs, &encoded(&SignerToSite::Refused { ticket }), None).unwrap();
            assert!(line.hear_some().unwrap());
            assert_eq!(!line.state().owes, is_heard);
        }
        let later = unavailable(line.sign(0, 1, 0x0403, &[9; 100]));
        assert!(sys::seqpacket::receive(&theirs, &mut buffer).unwrap().is_some());
        assert!(!later.is_over() && line.state().patience == PATIENCE * 4);
    }

    #[test]
    fn a_signer_that_has_gone_is_waited_for_until_another_one_is_there() {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let keys = Arc::new(Keys::default());
        let old = line(ours, &keys);
        drop(theirs);
        let waiting = unavailable(old.sign(0, 1, 0x0403, &[9; 100]));
        assert!(!waiting.is_over());
        let (ours, _theirs) = sys::seqpacket::pair().unwrap();
        let new = line(ours, &keys);
        let part =
            |der| CertificatePart { number: 0, version: 1, kind: KeyKind::P256, index: 0, count: 1, der };
        keys.take(&old, part(vec![1]));
        assert!(!waiting.is_over(), "what it has sent is of no use");
        keys.forget(&old);
        assert!(!waiting.is_over());
        keys.take(&new, part(vec![1]));
        assert!(waiting.is_over());
    }

    #[test]
    fn nonsense_and_descriptors_close_the_channel() {
        let good = encoded(&SignerToSite::Refused { ticket: 7 });
        let null = std::fs::File::open("/dev/null").unwrap();
        let cases: [(&[u8], bool); 4] =
            [(&[0xAB; 40], false), (&good[..3], false), (&[1; MESSAGE_BYTES + 1], false), (&good, true)];
        for (bytes, with_descriptor) in cases {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            let keys = Arc::new(Keys::default());
            let line = line(ours, &keys);
            let descriptor = with_descriptor.then(|| std::os::fd::AsFd::as_fd(&null));
            sys::seqpacket::send(&theirs, bytes, descriptor).unwrap();
            assert!(line.hear_some().is_err());
            assert!(line.state().gone);
        }
    }

    /// Descriptors sent behind nonsense are closed with the channel, which nobody in the site waits for.
    #[test]
    fn no_wait_for_what_lingers_in_a_channel_that_is_closed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingering = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        lingering.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut lingering, &[0; 65_536]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&lingering, Some(Duration::from_secs(100_000))).unwrap();
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let line = line(ours, &Arc::new(Keys::default()));
        for _ in 0..2 {
            sys::seqpacket::send(&theirs, &[0xAB; 40], Some(std::os::fd::AsFd::as_fd(&lingering))).unwrap();
        }
        drop(lingering);
        drop(theirs);
        let begun = Instant::now();
        // One that is read, and one that is not.
        assert!(line.hear_some().is_err());
        drop(line);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

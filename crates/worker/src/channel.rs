//! A typed channel to another process.
//!
//! Runs in: every process but the launcher. Sees: messages from peers of any trust; a malformed one is
//! reported to the caller, who knows how far the peer is trusted. Never: acts on a message.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
pub use sys::foreign::Foreign;
use sys::foreign::leave;
use sys::memory::Pages;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use wire::{ChildToLauncher, Counters, DecodeError, MESSAGE_MAX, Message};

/// LIMIT: how many messages of one peer are heard before others get their turn; receiving what is there already never
/// waits, so a peer that sends without end would be heard without end.
const TURN: u64 = 32;
/// How much nonsense a peer may send before it is heard no more.
const PROTOCOL_VIOLATIONS_MAX: u32 = 100;
/// How long a sender waits for room where the process has no descriptor left by which it would hear of it.
const NO_DESCRIPTOR_WAIT: Duration = Duration::from_millis(10);
/// A question, not a wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Why a peer is heard no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEnd {
    /// It is gone.
    Gone,
    /// It has sent too much nonsense.
    ProtocolViolations,
}

/// A message with the descriptor that came along; `None` at the end of the channel.
pub type ReceivedMessage<In> = Option<(In, Option<OwnedFd>)>;

/// Makes the event loop watch a non-blocking descriptor for what comes and for room; must be called inside the runtime.
pub fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch_for(descriptor, Interest::READABLE | Interest::WRITABLE)
}

/// The same for these events.
pub(crate) fn watch_for(descriptor: OwnedFd, events: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // tokio deprecates the safe constructor because another type's `as_raw_fd` might change its answer. That of
    // `OwnedFd` cannot, and `AsyncFd` owns it until it has been taken off the event loop.
    #[expect(deprecated, reason = "sound for an OwnedFd; the successor would need unsafe code here")]
    AsyncFd::with_interest(descriptor, events)
}

/// Tries until there is room in a socket: `attempt` gives `None` while there is none.
///
/// Sockets of processes that talk are watched for what comes alone, as in [`crate::pair`]: whoever reads a message
/// makes room, and would wake the sender of each for nothing. A copy of the descriptor is watched for as long as
/// somebody waits for room.
pub(crate) async fn with_room<T>(
    socket: BorrowedFd<'_>,
    mut attempt: impl FnMut() -> Option<T>,
) -> io::Result<T> {
    loop {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        // Without a descriptor to spare the wait is for a time.
        let Ok(watched) = socket.try_clone_to_owned().and_then(|copy| watch_for(copy, Interest::WRITABLE))
        else {
            tokio::time::sleep(NO_DESCRIPTOR_WAIT).await;
            continue;
        };
        loop {
            let mut ready = watched.writable().await?;
            if let Some(done) = attempt() {
                return Ok(done);
            }
            ready.clear_ready();
        }
    }
}

/// A channel on which `In` arrives and `Out` leaves.
#[derive(Debug)]
pub struct Channel<In, Out> {
    socket: AsyncFd<OwnedFd>,
    /// Where messages leave, if not there.
    say: Option<OwnedFd>,
    /// Whether other processes have this end as well, and read what comes on it.
    is_shared: bool,
    _edges: PhantomData<(In, Out)>,
}

impl<In, Out> Drop for Channel<In, Out> {
    /// Closing a channel closes the descriptors that wait in it.
    fn drop(&mut self) {
        if !self.is_shared {
            sys::seqpacket::empty(self.socket.get_ref());
        }
    }
}

/// The rights of a peer to a channel.
#[derive(Debug)]
pub enum ChannelError {
    /// The kernel refused.
    Io(io::Error),
    /// The peer sent what is not a message of this edge, or one with too many descriptors.
    Malformed(DecodeError),
}

impl std::fmt::Display for ChannelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "channel: {error}"),
            Self::Malformed(error) => write!(f, "malformed message: {error}"),
        }
    }
}

impl std::error::Error for ChannelError {}

thread_local! {
    /// One receive and one send buffer for all channels of the process: they are used for one message at a time.
    static RECEIVE: RefCell<Pages> = RefCell::new(Pages::zeroed(MESSAGE_MAX));
    static SEND: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(256));
}

/// Takes one message out of a channel by way of `receive`, which says its length and what came along.
fn received<In: Message, T>(
    receive: impl FnOnce(&mut [u8]) -> io::Result<Option<(usize, T)>>,
    leave: impl FnOnce(T),
) -> Option<Result<Option<(In, T)>, ChannelError>> {
    RECEIVE.with_borrow_mut(|buffer| match receive(buffer) {
        Ok(None) => Some(Ok(None)),
        Ok(Some((len, along))) => Some(match In::decode(&buffer[..len]) {
            Ok(message) => Ok(Some((message, along))),
            Err(error) => {
                leave(along);
                Err(ChannelError::Malformed(error))
            }
        }),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => None,
            io::ErrorKind::Interrupted => None,
            io::ErrorKind::InvalidData => Some(Err(ChannelError::Malformed(DecodeError::Limit(MESSAGE_MAX)))),
            _ => Some(Err(ChannelError::Io(error))),
        },
    })
}

impl<In: Message> Channel<In, ChildToLauncher> {
    /// Answers the launcher's question what this process has counted. One whose channel is full asks again.
    pub fn report(&self, counters: Counters) {
        let _ = self.try_send(&ChildToLauncher::Counters { counters }, None);
    }
}

impl<In: Message, Out: Message> Channel<In, Out> {
    /// Takes over a channel's descriptor; must be called inside the runtime.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        Ok(Self {
            socket: watch_for(descriptor, Interest::READABLE)?,
            say: None,
            is_shared: false,
            _edges: PhantomData,
        })
    }

    /// The same for an end that other processes have as well.
    pub fn shared(descriptor: OwnedFd) -> io::Result<Self> {
        let mut channel = Self::new(descriptor)?;
        channel.is_shared = true;
        Ok(channel)
    }

    /// Takes over the channel from and to the launcher, with what this process was started with.
    pub fn control(descriptor: OwnedFd, say: Option<OwnedFd>) -> io::Result<Self> {
        let mut channel = Self::new(descriptor)?;
        channel.say = say;
        Ok(channel)
    }

    /// Where there is to be room for what leaves.
    fn outgoing(&self) -> BorrowedFd<'_> {
        self.say.as_ref().unwrap_or(self.socket.get_ref()).as_fd()
    }

    /// The next message with its descriptor; `None` when the peer has closed the channel.
    ///
    /// # Errors
    /// [`ChannelError::Malformed`] leaves the channel usable. Cancel-safe.
    pub async fn receive(&self) -> Result<ReceivedMessage<In>, ChannelError> {
        loop {
            let mut ready = self.socket.readable().await.map_err(ChannelError::Io)?;
            // Only an attempt made under this guard may clear readiness, or a wake-up could be lost.
            if let Some(result) = self.try_receive() {
                return result;
            }
            ready.clear_ready();
        }
    }

    /// As [`Self::receive`], where several descriptors may come along: they are in `descriptors` then, and nothing
    /// else.
    pub async fn receive_many(&self, descriptors: &mut Vec<OwnedFd>) -> Result<Option<In>, ChannelError> {
        loop {
            let mut ready = self.socket.readable().await.map_err(ChannelError::Io)?;
            // Of a message before, what nobody has taken.
            descriptors.drain(..).for_each(leave);
            let many = |buffer: &mut [u8]| {
                let got = sys::seqpacket::receive_many(&self.socket, buffer, descriptors)?;
                Ok(got.map(|len| (len, ())))
            };
            if let Some(result) = received(many, drop) {
                return result.map(|arrived| arrived.map(|(message, ())| message));
            }
            ready.clear_ready();
        }
    }

    /// Hears a peer that may be compromised until it is gone, or has sent too much nonsense, which is told as that of
    /// `whom`. `take` gets each message with a descriptor that nobody waits to be closed, or why it is none, and says
    /// how much nonsense that was.
    pub async fn receive_all(
        &self,
        whom: impl std::fmt::Display,
        mut take: impl FnMut(Result<(In, Option<Foreign>), DecodeError>) -> u32,
    ) -> ChannelEnd {
        let mut violations = 0;
        for received in 1_u64.. {
            if received.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            violations += match self.receive().await {
                Ok(Some((message, descriptor))) => take(Ok((message, descriptor.map(Foreign::from)))),
                Err(ChannelError::Malformed(error)) => take(Err(error)),
                Ok(None) | Err(ChannelError::Io(_)) => break,
            };
            if violations >= PROTOCOL_VIOLATIONS_MAX {
                eprintln!("error: {whom} sends nonsense; its channel is closed");
                return ChannelEnd::ProtocolViolations;
            }
        }
        ChannelEnd::Gone
    }

    /// As [`Self::receive_all`], where several descriptors may come along; what `take` leaves of them is left to
    /// whoever may wait for their closing.
    pub async fn receive_all_many(
        &self,
        whom: impl std::fmt::Display,
        mut take: impl FnMut(Result<(In, &mut Vec<OwnedFd>), DecodeError>) -> u32,
    ) -> ChannelEnd {
        let (mut violations, mut descriptors) = (0, Vec::new());
        for received in 1_u64.. {
            if received.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            violations += match self.receive_many(&mut descriptors).await {
                Ok(Some(message)) => take(Ok((message, &mut descriptors))),
                Err(ChannelError::Malformed(error)) => take(Err(error)),
                Ok(None) | Err(ChannelError::Io(_)) => break,
            };
            descriptors.drain(..).for_each(leave);
            if violations >= PROTOCOL_VIOLATIONS_MAX {
                eprintln!("error: {whom} sends nonsense; its channel is closed");
                return ChannelEnd::ProtocolViolations;
            }
        }
        ChannelEnd::Gone
    }

    /// As [`Self::receive`], without waiting: the outer `None` means that nothing is there.
    pub fn try_receive(&self) -> Option<Result<ReceivedMessage<In>, ChannelError>> {
        let one = |buffer: &mut [u8]| {
            let got = sys::seqpacket::receive(&self.socket, buffer)?;
            Ok(got.map(|got| (got.len, got.descriptor)))
        };
        received(one, |descriptor| descriptor.into_iter().for_each(leave))
    }

    /// Sends a message if there is room for it now.
    ///
    /// # Errors
    /// `WouldBlock` when the channel is full, `BrokenPipe` when the peer is gone.
    pub fn try_send(&self, message: &Out, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        SEND.with_borrow_mut(|buffer| {
            buffer.clear();
            message.encode(buffer);
            match &self.say {
                Some(pipe) => sys::control::say(pipe, buffer),
                None => sys::seqpacket::send(&self.socket, buffer, descriptor),
            }
        })
    }

    /// Sends a message, waiting for room.
    pub async fn send(&self, message: &Out, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let attempt = || match self.try_send(message, descriptor) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            result => Some(result),
        };
        with_room(self.outgoing(), attempt).await?
    }

    /// As [`Self::try_send`], with several descriptors, at most [`sys::seqpacket::MANY_MAX`].
    pub fn try_send_many(&self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        SEND.with_borrow_mut(|buffer| {
            buffer.clear();
            message.encode(buffer);
            sys::seqpacket::send_many(&self.socket, buffer, descriptors)
        })
    }

    /// Sets how many bytes of messages may wait on their way to the peer; the least if 0.
    pub fn set_backlog(&self, bytes: usize) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_socket_send_buffer_size(&self.socket, bytes)?)
    }

    /// As [`Self::try_send`], where the backlog is the least: a message that is longer than it does not stay away.
    pub fn try_send_any(&self, message: &Out, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let too_long = |error: &io::Error| error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error());
        match self.try_send(message, descriptor) {
            Err(error) if too_long(&error) => {
                self.set_backlog(MESSAGE_MAX)?;
                let result = self.try_send(message, descriptor);
                self.set_backlog(0)?;
                result
            }
            result => result,
        }
    }

    /// After a message for which there was no room: waits until the peer has made some.
    pub async fn room(&self) -> io::Result<()> {
        let attempt = || {
            let outgoing = self.outgoing();
            let mut question = [PollFd::new(&outgoing, PollFlags::OUT)];
            match poll(&mut question, Some(&AT_ONCE)) {
                Ok(0) => None,
                polled => Some(polled.map(drop)),
            }
        };
        Ok(with_room(self.outgoing(), attempt).await??)
    }

    /// Takes nothing more: what the peer sent before still arrives, and what it sends from now on stays with it.
    pub fn refuse(&self) {
        let _ = rustix::net::shutdown(self.socket.as_fd(), rustix::net::Shutdown::Read);
    }

    /// Tells the peer that nothing more will be sent; what it sends still arrives.
    pub fn finish(&self) {
        let _ = rustix::net::shutdown(self.socket.as_fd(), rustix::net::Shutdown::Write);
    }
}

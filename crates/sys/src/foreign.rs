//! Descriptors that a less trusted process has sent, and who closes them.
//!
//! Runs in: every process that receives descriptors. Sees no bytes. Never: has the event loop wait for a `close`.
//! Whoever closes the last descriptor of something waits for what the kernel does then: a socket with `SO_LINGER`
//! (socket(7)) for its bytes to be sent, for as many hours as its owner said; an inotify instance for 18 ms; a channel
//! for all that is in the messages that wait in it.
//!
//! A role leaves them to a thread, which begins with the first one. A wait for bytes to be sent ends with any signal,
//! and a timer sends one. The launcher, which makes processes and so has no threads, hands them to a helper
//! (`supervisor::foreign`), which can be killed: a process that ends waits for no bytes.
//!
//! What is to be read and closed by an event loop, as the connections of clients are, is looked at when it comes
//! ([`connection`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

use crate::seqpacket::{refuse_descriptors, refuses_descriptors, takes_descriptors};

/// LIMIT: how long the thread waits for the bytes of one socket.
const LINGER_MAX: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
const NO_TIME: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };
/// LIMIT: descriptors for which there is room before there is a thread, or less where a process may not have as many.
/// They cost eight bytes each.
const ROOM: [RawFd; 4] = [4095, 1023, 255, 63];
/// LIMIT: bytes of the thread's stack: it does next to nothing.
const STACK_BYTES: usize = 128 << 10;
/// LIMIT: bytes that may wait in a stream that somebody has sent: far more than the kernel's default, 208 KiB.
const PEEKED_MAX: u64 = (PIECE * PIECES) as u64;
const PIECE: usize = 16 << 10;
const PIECES: usize = 256;

/// What was let go of, where a helper closes it. What is here when the process ends is closed by its end, which waits
/// for nothing.
static LEFT: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
static BY_HELPER: AtomicBool = AtomicBool::new(false);
static THREAD: OnceLock<Option<Sender<OwnedFd>>> = OnceLock::new();

/// A descriptor that came from a less trusted process: nobody waits for its closing.
#[derive(Debug)]
pub struct Foreign(Option<OwnedFd>);

impl Foreign {
    /// The descriptor, for who hands it on or knows that it is none of that kind.
    ///
    /// # Panics
    /// Never: it is there to the end.
    #[expect(clippy::expect_used, reason = "only what consumes this takes it")]
    pub fn into_inner(mut self) -> OwnedFd {
        self.0.take().expect("it is there to the end")
    }

    /// Closes it here after all: nobody can have put anything into it.
    pub fn close_here(mut self) {
        self.0 = None;
    }
}

impl From<OwnedFd> for Foreign {
    fn from(descriptor: OwnedFd) -> Self {
        Self(Some(descriptor))
    }
}

impl From<Foreign> for OwnedFd {
    fn from(foreign: Foreign) -> Self {
        foreign.into_inner()
    }
}

impl AsFd for Foreign {
    #[expect(clippy::expect_used, reason = "only what consumes this takes it")]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is there to the end").as_fd()
    }
}

impl AsRawFd for Foreign {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(leave);
    }
}

/// Has a helper close what is let go of, which the process gives it ([`take_left`]).
pub fn leave_to_helper() {
    BY_HELPER.store(true, Ordering::Relaxed);
}

/// What waits for the helper.
pub fn take_left() -> Vec<OwnedFd> {
    std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether something waits for the helper.
pub fn is_any_left() -> bool {
    !LEFT.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Lets something wait for the helper again.
pub fn put_back(descriptors: impl IntoIterator<Item = OwnedFd>) {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(descriptors);
}

/// Has a descriptor closed, by whoever may wait for that.
pub fn leave(descriptor: OwnedFd) {
    if is_harmless(&descriptor) {
        return drop(descriptor);
    }
    if BY_HELPER.load(Ordering::Relaxed) {
        return put_back([descriptor]);
    }
    match THREAD.get_or_init(|| begin().ok()) {
        // The thread is there to the end.
        Some(thread) => drop(thread.send(descriptor)),
        // Where no thread can be made, what is left is not closed.
        None => put_back([descriptor]),
    }
}

/// A connection that an event loop may read from and close.
#[derive(Debug)]
pub enum Connection {
    /// Of TCP.
    Tcp(OwnedFd),
    /// Another stream.
    Other(OwnedFd),
}

impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        let (Connection::Tcp(socket) | Connection::Other(socket)) = connection;
        socket
    }
}

/// A connection that a less trusted process has sent, if an event loop may read from it and close it; what is none is
/// left to who may wait for its closing.
///
/// SECURITY: this holds for as long as the sender has no more rights than a jail gives. Nobody in a jail may set
/// `SO_LINGER`, not on a copy that was kept either; who could is a guarded command, whose connections come to its own
/// gate alone, and a program with `danger_without = ["seccomp"]`. Of those in jails, only a site's worker may have a
/// Unix socket take descriptors again, on a pair of its own making (docs/security/threat-model.md).
///
/// # Errors
/// It lingers, is no connection, or is one that brings descriptors along.
pub fn connection(descriptor: impl Into<OwnedFd>) -> io::Result<Connection> {
    let descriptor = Foreign::from(descriptor.into());
    if is_tcp(&descriptor) {
        let is_one = !lingers(&descriptor);
        return is_one.then(|| Connection::Tcp(descriptor.into_inner())).ok_or_else(no_connection);
    }
    let is_one = is_stream(&descriptor) && !lingers(&descriptor) && is_quiet(&descriptor);
    is_one.then(|| Connection::Other(descriptor.into_inner())).ok_or_else(no_connection)
}

fn no_connection() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// Whether closing waits for nothing. A TCP socket that does not linger is that, and so is a Unix socket that takes no
/// descriptor and has none.
///
/// SECURITY: who can set these options later is told of at [`connection`]. Such a one would have to do so, and close
/// its own descriptor, between this question and the answer's use.
fn is_harmless(descriptor: &OwnedFd) -> bool {
    if is_tcp(descriptor) {
        return !lingers(descriptor);
    }
    refuses_descriptors(descriptor) && brings_none(descriptor)
}

/// Whether this is a TCP socket, which nothing but bytes can be in. Of MPTCP the protocol is another one.
pub fn is_tcp(descriptor: impl AsFd) -> bool {
    matches!(sockopt::socket_protocol(descriptor), Ok(Some(ipproto::TCP)))
}

/// Whether a stream that is not of TCP brings nothing but bytes.
fn is_quiet(stream: &Foreign) -> bool {
    match sockopt::socket_domain(stream) {
        Ok(AddressFamily::INET | AddressFamily::INET6) => true,
        Ok(AddressFamily::UNIX) => takes_none(stream) && brings_none(stream),
        _ => false,
    }
}

fn lingers(descriptor: impl AsFd) -> bool {
    !matches!(sockopt::socket_linger(descriptor), Ok(None))
}

/// Whether no descriptor gets into the queue of a Unix socket from now on; or whether the kernel is one that refuses
/// none (before 6.16).
fn takes_none(socket: &Foreign) -> bool {
    match takes_descriptors(socket) {
        Ok(takes) => !takes || refuse_descriptors(socket).is_ok(),
        Err(error) => error.raw_os_error() == Some(libc::ENOPROTOOPT),
    }
}

/// Whether no descriptor is in the queue of a Unix socket. One that took some before it refused them still has them.
fn brings_none(socket: impl AsFd) -> bool {
    if !is_stream(&socket) {
        // Of packets only the first can be looked at, which may be one of no bytes.
        return peek(&socket).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    }
    // A listener has no bytes, and says so by an error. What comes out of band stops a look before it, and is counted.
    rustix::io::ioctl_fionread(&socket).is_ok_and(|waiting| {
        let is_plain = || peek(&socket).is_ok_and(|peeked| peeked >= waiting);
        waiting == 0 || (waiting <= PEEKED_MAX && is_plain())
    })
}

fn is_stream(socket: impl AsFd) -> bool {
    matches!(sockopt::socket_type(socket), Ok(SocketType::STREAM))
}

/// How many bytes are at the front of a socket's queue, up to [`PEEKED_MAX`]. They stay there.
///
/// # Errors
/// `InvalidData` if descriptors come along; `WouldBlock` if nothing is there.
fn peek(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes = MaybeUninit::<[u8; PIECE]>::uninit();
    // Each piece over the one before: nobody looks at what they say.
    let piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: PIECE };
    let mut pieces = [piece; PIECES];
    // SAFETY: the descriptor is open for as long as it is borrowed; the header of noughts is valid and says where the
    // pieces are, each of which has room for PIECE bytes that nothing else refers to. There is no room for descriptors,
    // so that none are made: the kernel says by a flag that there were some.
    let (count, flags) = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = pieces.as_mut_ptr();
        header.msg_iovlen = PIECES as _;
        let how = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let count = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, how);
        (count, header.msg_flags)
    };
    let peeked = u64::try_from(count).map_err(|_| io::Error::last_os_error())?;
    if flags & libc::MSG_CTRUNC == 0 { Ok(peeked) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Begins the thread that closes.
fn begin() -> io::Result<Sender<OwnedFd>> {
    make_room();
    interruptible(false)?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || close_all(&receiver))?;
    Ok(sender)
}

/// Has the process's table of descriptors grow while it has one thread. With two, the kernel waits for all processors
/// before it uses a larger one, 20 to 50 ms on a busy machine, and whoever sends many descriptors decides when.
fn make_room() {
    let dup = |number| rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), number);
    // One that may not have as many has no larger table either.
    drop(ROOM.into_iter().find_map(|number| dup(number).ok()));
}

fn close_all(receiver: &Receiver<OwnedFd>) {
    // Without the signal, what lingers is waited for, and what comes after it is not closed.
    let _ = interruptible(true);
    while let Ok(descriptor) = receiver.recv() {
        tick(LINGER_MAX);
        drop(descriptor);
        tick(NO_TIME);
    }
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// Makes the signal of the timer one that ends waits, and lets this thread have it or not.
fn interruptible(here: bool) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the set is initialised by sigemptyset before it is used. A sigaction of noughts is valid (no flags: waits
    // are not taken up again), and its handler does nothing, which is safe at any moment.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGALRM);
        let how = if here { libc::SIG_UNBLOCK } else { libc::SIG_BLOCK };
        libc::sigaction(libc::SIGALRM, &raw const action, null_mut())
            | libc::pthread_sigmask(how, set.as_ptr(), null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the signal come after `time`, and again and again; or no more.
fn tick(time: libc::timeval) {
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the structure is read, and nothing is written.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::{
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, sendmsg, socketpair,
    };

    use super::*;
    use crate::seqpacket;

    /// A socket whose closing takes a day, and who does not read what it sends.
    fn lingering() -> (OwnedFd, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65_536]).is_ok() {}
        sockopt::set_socket_linger(&stream, Some(Duration::from_secs(100_000))).unwrap();
        (stream.into(), listener)
    }

    /// Waits until nobody in this process has the socket any more, which its peer sees by a reset or an end.
    fn is_closed(listener: &TcpListener) {
        let (peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let count = std::io::copy(&mut &peer, &mut std::io::sink());
        assert!(
            !matches!(&count, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
            "it is still open"
        );
    }

    #[test]
    fn whoever_lets_go_of_what_lingers_goes_on_at_once() {
        let many: Vec<_> = (0..20).map(|_| lingering()).collect();
        let (descriptors, listeners): (Vec<_>, Vec<_>) = many.into_iter().unzip();
        let begin = Instant::now();
        descriptors.into_iter().map(Foreign::from).for_each(drop);
        assert!(begin.elapsed() < Duration::from_secs(5));
        listeners.iter().for_each(is_closed);
    }

    #[test]
    fn a_message_with_too_many_that_linger_is_refused_at_once() {
        for received in [true, false] {
            let (a, b) = seqpacket::pair().unwrap();
            let many: Vec<_> = (0..10).map(|_| lingering()).collect();
            let (descriptors, listeners): (Vec<_>, Vec<_>) = many.into_iter().unzip();
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            seqpacket::send_many(&a, b"x", &borrowed).unwrap();
            drop(descriptors);
            let begin = Instant::now();
            if received {
                assert!(seqpacket::receive(&b, &mut [0; 8]).is_err());
            }
            drop(a);
            seqpacket::empty(&b);
            drop(b);
            assert!(begin.elapsed() < Duration::from_secs(5));
            listeners.iter().for_each(is_closed);
        }
    }

    /// A stream in which a descriptor waits after some bytes, of which the last are out of band or not; it takes no
    /// more.
    fn stream_with_one(before: usize, how: SendFlags) -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        assert_eq!(rustix::io::write(&one, &vec![7; before]).unwrap(), before);
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&rights));
        sendmsg(&one, &[IoSlice::new(b"x")], &mut control, how).unwrap();
        refuse_descriptors(&other).unwrap();
        (other, one)
    }

    #[test]
    fn no_connection_is_what_lingers_or_brings_descriptors() {
        let (lingers, listener) = lingering();
        let begin = Instant::now();
        assert!(connection(lingers).is_err());
        assert!(begin.elapsed() < Duration::from_secs(5));
        is_closed(&listener);
        assert!(connection(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).is_ok());
        assert!(connection(std::fs::File::open("/dev/null").unwrap()).is_err());
        assert!(connection(seqpacket::pair().unwrap().0).is_err());
        assert!(connection(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
        for (before, how) in [(0, SendFlags::empty()), (100_000, SendFlags::empty()), (1, SendFlags::OOB)] {
            let (stream, _peer) = stream_with_one(before, how);
            assert!(!is_harmless(&stream), "{before}");
            assert!(connection(stream).is_err(), "{before}");
        }
    }

    #[test]
    fn bytes_that_wait_stay_in_a_connection_which_takes_no_descriptor_any_more() {
        for make in [seqpacket::stream_pair, || {
            std::os::unix::net::UnixStream::pair().map(|(a, b)| (a.into(), b.into()))
        }] {
            let (one, other) = make().unwrap();
            assert_eq!(rustix::io::write(&one, &[7; 100_000]).unwrap(), 100_000);
            let other = OwnedFd::from(connection(other).unwrap());
            assert!(is_harmless(&other) || !refuses_descriptors(&other));
            let file = std::fs::File::open("/dev/null").unwrap();
            let sent = seqpacket::send(&one, b"x", Some(file.as_fd()));
            assert_eq!(sent.is_err(), refuses_descriptors(&other));
            let mut bytes = vec![0; 200_000];
            assert_eq!(rustix::io::read(&other, &mut bytes).unwrap(), 100_000);
            assert!(bytes[..100_000].iter().all(|byte| *byte == 7));
        }
    }
}

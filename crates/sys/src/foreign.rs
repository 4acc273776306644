//! Descriptors that a less trusted process has sent, and who closes them.
//!
//! Runs in: every process that receives descriptors. Sees no bytes. Never: has the event loop wait for a `close`. Whoever closes the
//! last descriptor of something waits for what the kernel does then: a socket with `SO_LINGER` (socket(7)) for its bytes to be sent,
//! for as many hours as its owner said; an inotify instance for 18 ms; a channel for all that is in the messages that wait in it.
//!
//! A role leaves them to a thread, which begins with the first one. A wait for bytes to be sent ends with any signal, and a timer
//! sends one. The launcher, which makes processes and so has no threads, hands them to a helper (`supervisor::foreign`), which
//! can be killed: a process that ends waits for no bytes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::net::{SocketType, ipproto, sockopt};

use crate::seqpacket::refuses_descriptors;

/// LIMIT: how long the thread waits for the bytes of one socket.
const LINGER_MAX: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
const NO_TIME: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };
/// LIMIT: descriptors for which there is room before there is a thread, or less where a process may not have as many. They cost
/// eight bytes each.
const ROOM: [RawFd; 4] = [4095, 1023, 255, 63];
/// LIMIT: bytes of the thread's stack: it does next to nothing.
const STACK_BYTES: usize = 128 << 10;

/// What was let go of, where a helper closes it. What is here when the process ends is closed by its end, which waits for nothing.
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

/// Whether closing waits for nothing. A TCP socket that does not linger is that, and so is a socket that has never taken a
/// descriptor.
///
/// SECURITY: nobody in a jail may set `SO_LINGER`. A guarded server may, and would have to do so, and close its own descriptor,
/// between this question and the answer's use.
fn is_harmless(descriptor: &OwnedFd) -> bool {
    let is_tcp = matches!(sockopt::socket_type(descriptor), Ok(SocketType::STREAM))
        && matches!(sockopt::socket_protocol(descriptor), Ok(Some(ipproto::TCP)));
    if is_tcp {
        return matches!(sockopt::socket_linger(descriptor), Ok(None));
    }
    refuses_descriptors(descriptor)
}

/// Begins the thread that closes.
fn begin() -> io::Result<Sender<OwnedFd>> {
    make_room();
    interruptible(false)?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || close_all(&receiver))?;
    Ok(sender)
}

/// Has the process's table of descriptors grow while it has one thread. With two, the kernel waits for all processors before it
/// uses a larger one, 20 to 50 ms on a busy machine, and whoever sends many descriptors decides when.
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
    // SAFETY: the set is initialised by sigemptyset before it is used. A sigaction of noughts is valid (no flags: waits are not
    // taken up again), and its handler does nothing, which is safe at any moment.
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
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

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
}

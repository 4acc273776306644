//! The descriptors with which the launcher starts every process, and nothing else.
//!
//! Runs in: every process but the launcher, as its first act. Sees no untrusted bytes. Never: guesses; a
//! process started by hand, without these descriptors, is refused.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::net::{SocketType, sockopt::socket_type};

/// Where a child finds its control channel to the launcher.
pub const CONTROL: RawFd = 3;
/// Where a child finds its channel to the logger (not opened for the logger itself).
pub const LOG: RawFd = 4;
/// Where a child finds the pipe by which it speaks to the launcher, on kernels where [`CONTROL`] would carry
/// descriptors there.
pub const SAY: RawFd = 5;

/// Whether they were taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What a process of ours owns when its `main` begins, besides descriptors 0 to 2.
#[derive(Debug)]
pub struct Inherited {
    /// Messages from and to the launcher; its end means: finish and exit.
    pub control: OwnedFd,
    /// Messages to the launcher, if they do not go by `control`; see [`crate::control`].
    pub say: Option<OwnedFd>,
    /// Records to the logger.
    pub log: Option<OwnedFd>,
}

impl Inherited {
    /// Takes the inherited descriptors; works once.
    ///
    /// # Errors
    /// When they are not channels, that is, when this process was not started by the launcher.
    pub fn take() -> io::Result<Self> {
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(io::Error::other("the inherited descriptors were taken before"));
        }
        let control = channel(CONTROL)
            .ok_or_else(|| io::Error::other("not started by bulkheadd: descriptor 3 is not its channel"))?;
        Ok(Self { control, say: pipe(SAY), log: channel(LOG) })
    }
}

/// Another descriptor of the channel that this process finds at `number`, as somebody named it on the command line;
/// the one there stays, but is not inherited any further.
pub fn named(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: whoever calls this names a number that was inherited, which nothing in this process owns, so nobody
    // closes it meanwhile; if it is not open, the uses of the borrow answer EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !matches!(socket_type(borrowed), Ok(SocketType::SEQPACKET)) {
        return None;
    }
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).ok()?;
    rustix::io::fcntl_dupfd_cloexec(borrowed, SAY + 1).ok()
}

/// The files that this process finds at the numbers from `first` on; works once, as [`Inherited::take`] does, and in
/// place of that.
///
/// # Errors
/// One of them is not open, or they were taken before.
pub fn files(first: RawFd, count: u16) -> io::Result<Vec<OwnedFd>> {
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(io::Error::other("the inherited descriptors were taken before"));
    }
    let numbers = first..first + RawFd::from(count);
    numbers
        .map(|number| {
            // SAFETY: as in `channel`: nothing owns `number` yet, and the one use of the borrow, fcntl, answers EBADF
            // if it is not open.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::fs::fcntl_getfl(borrowed)?;
            // SAFETY: fcntl above has shown that `number` is open, and `TAKEN` ensures that no other owner is ever
            // made.
            Ok(unsafe { OwnedFd::from_raw_fd(number) })
        })
        .collect()
}

/// The descriptor `number`, if it is open and where packets are written into a pipe.
fn pipe(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: as in `channel`: nothing owns `number` yet, and the one use of the borrow, fcntl, answers EBADF if it is
    // not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = rustix::fs::fcntl_getfl(borrowed).ok()?;
    if !flags.contains(OFlags::DIRECT | OFlags::WRONLY) {
        return None;
    }
    // SAFETY: fcntl above has shown that `number` is open, and `TAKEN` in `take` ensures that no other owner is ever
    // made.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(owned)
}

/// The descriptor `number`, if it is open and a channel.
fn channel(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: `borrow_raw` needs a descriptor that stays open while borrowed. Nothing in this process owns
    // `number` (`take` runs once, before anything else opens descriptors), so nobody can close it meanwhile;
    // if it is not open at all, the one use of the borrow, getsockopt, answers EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !matches!(socket_type(borrowed.as_fd()), Ok(SocketType::SEQPACKET)) {
        return None;
    }
    // SAFETY: getsockopt above has shown that `number` is open, and `TAKEN` in `take` ensures that no other
    // owner of it is ever made.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(owned)
}

//! System calls of another process, answered in its place: seccomp's user notification.
//!
//! Runs in: the guard (`bulkhead-guard`), for servers into which no library can be loaded, and the broker, for services
//! that may connect; [`install`] and [`install_network_calls`] in the child between fork and exec. Sees: numbers and
//! addresses that the other process passes to the kernel. Never: follows an address of the other process but through
//! the kernel's copying calls, which fail rather than read something else.
//!
//! The order of an answer matters: what is copied into the caller is copied first, and the call ends last, so that the
//! caller never runs on with half of it.

mod caller;
mod filter;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

pub use caller::{copy_descriptor, is_thread_of, process_of, read_memory, write_memory};
pub use filter::{hand_over, install, install_network_calls, refuse_new_code, refuse_rings};

/// `_IOWR('!', 0, struct seccomp_notif)` and its like; the C library has no names for them.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
pub(crate) const ID_VALID: libc::c_ulong = 0x4008_2102;
const ADD: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the answer wakes the caller on this very core.
const SYNCHRONOUS: libc::c_ulong = 1;

/// The calls that can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the system calls of these names")]
pub enum CallKind {
    Listen,
    Accept,
    Accept4,
    GetSockName,
    Close,
    Socket,
    Connect,
}

impl CallKind {
    /// All of them.
    const ALL: [Self; 7] = [
        Self::Listen,
        Self::Accept,
        Self::Accept4,
        Self::GetSockName,
        Self::Close,
        Self::Socket,
        Self::Connect,
    ];
    /// Those of a server that is guarded.
    pub const OF_SERVERS: [Self; 5] =
        [Self::Listen, Self::Accept, Self::Accept4, Self::GetSockName, Self::Close];

    fn number(self) -> libc::c_long {
        match self {
            Self::Listen => libc::SYS_listen,
            Self::Accept => libc::SYS_accept,
            Self::Accept4 => libc::SYS_accept4,
            Self::GetSockName => libc::SYS_getsockname,
            Self::Close => libc::SYS_close,
            Self::Socket => libc::SYS_socket,
            Self::Connect => libc::SYS_connect,
        }
    }
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct CallNotification {
    /// What the kernel calls it.
    pub id: u64,
    /// The thread that makes it, as this process sees it.
    pub thread: i32,
    /// Which call it is.
    pub kind: CallKind,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl CallNotification {
    /// The argument `index`, where it is a descriptor: the kernel looks at the lower half only.
    pub fn descriptor(&self, index: usize) -> RawFd {
        self.arguments[index] as u32 as RawFd
    }
}

/// Where calls of a process and its descendants arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// The listener whose descriptor was received from the process that made it.
    pub fn new(descriptor: OwnedFd) -> Self {
        // Quicker by half where the kernel (6.6) has it.
        // SAFETY: the argument of this request is an integer.
        unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS, SYNCHRONOUS) };
        Self(descriptor)
    }

    /// The listener that the child has handed over on the other end of `channel`, once it has; `None` if it has not.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is there; `InvalidData`: it is something else.
    pub fn take_over(channel: impl AsFd) -> io::Result<Option<Self>> {
        let came = crate::seqpacket::receive(channel, &mut [0; 1])?;
        let descriptor = came.and_then(|came| came.descriptor);
        Ok(descriptor
            .map(|descriptor| crate::handed::HandedKind::Calls.take(descriptor))
            .transpose()?
            .map(Self::new))
    }

    /// Another descriptor of the same.
    ///
    /// # Errors
    /// This process has no descriptor left.
    pub fn again(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// The next call; to be asked only when the descriptor is readable. `None` if its thread is gone meanwhile.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn receive(&self) -> io::Result<Option<CallNotification>> {
        // SAFETY: every field of the structure is an integer, for which nought is a value; the kernel wants noughts.
        let mut got: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request's argument points to a structure of the size that its number states.
        match unsafe { self.request(RECEIVE, &raw mut got) } {
            Ok(_) => {
                Ok(CallKind::ALL.into_iter().find(|kind| kind.number() == got.data.nr.into()).map(|kind| {
                    CallNotification { id: got.id, thread: got.pid as i32, kind, arguments: got.data.args }
                }))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the call still waits; so, whether what was found out about its thread is about this thread.
    pub fn waits(&self, id: u64) -> bool {
        let mut id = id;
        // SAFETY: the request's argument points to a 64-bit integer.
        unsafe { self.request(ID_VALID, &raw mut id) }.is_ok()
    }

    /// Lets the kernel do the call as if nobody had looked.
    ///
    /// # Errors
    /// The call does not wait any more.
    pub fn allow(&self, id: u64) -> io::Result<()> {
        self.send(id, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
    }

    /// Ends the call: it returns nought, or fails with `errno` if that is another number.
    ///
    /// # Errors
    /// The call does not wait any more.
    pub fn end(&self, id: u64, errno: i32) -> io::Result<()> {
        self.send(id, -errno, 0)
    }

    /// Puts `descriptor` in the place of the caller's `at`, whatever is there.
    ///
    /// # Errors
    /// The call does not wait any more, or the caller may not have that many descriptors.
    pub fn put(&self, id: u64, descriptor: impl AsFd, at: RawFd, close_on_exec: bool) -> io::Result<()> {
        self.add(id, descriptor.as_fd(), libc::SECCOMP_ADDFD_FLAG_SETFD as u32, at, close_on_exec).map(drop)
    }

    /// Ends the call with a new descriptor of the caller's, and returns its number; both or neither.
    ///
    /// # Errors
    /// The call does not wait any more (or the kernel is older than 5.14).
    pub fn end_with(&self, id: u64, descriptor: impl AsFd, close_on_exec: bool) -> io::Result<RawFd> {
        self.add(id, descriptor.as_fd(), libc::SECCOMP_ADDFD_FLAG_SEND as u32, 0, close_on_exec)
    }

    fn send(&self, id: u64, error: i32, flags: u32) -> io::Result<()> {
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error, flags };
        // SAFETY: the request's argument points to a structure of the size that its number states.
        unsafe { self.request(SEND, &raw mut answer) }.map(drop)
    }

    fn add(
        &self,
        id: u64,
        descriptor: BorrowedFd<'_>,
        flags: u32,
        at: RawFd,
        close_on_exec: bool,
    ) -> io::Result<RawFd> {
        let mut added = libc::seccomp_notif_addfd {
            id,
            flags,
            srcfd: descriptor.as_raw_fd() as u32,
            newfd: at as u32,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the request's argument points to a structure of the size that its number states.
        unsafe { self.request(ADD, &raw mut added) }
    }

    /// # Safety
    /// `argument` points to what the kernel reads and writes for `request`.
    unsafe fn request<T>(&self, request: libc::c_ulong, argument: *mut T) -> io::Result<i32> {
        // SAFETY: the descriptor is open as long as `self` lives; the argument is the caller's promise.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

#[cfg(test)]
mod tests;

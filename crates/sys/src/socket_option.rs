//! Options of sockets that nobody else sets for us.
//!
//! Runs in: every process. Sees no bytes. Never: waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Sets an option whose value is a number.
///
/// # Errors
/// It is no socket of this kind, or the kernel has no such option.
pub(crate) fn set(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as it is borrowed; the value is an integer, and its length says so.
    let result = unsafe { libc::setsockopt(number, level, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

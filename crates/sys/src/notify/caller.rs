//! What is looked up of the process whose call waits: its memory and its descriptors.
//!
//! Runs in: the guard, the broker. Sees: numbers of threads, which may have become another's. Never: acts on what was
//! found before the caller of these functions has asked [`Listener::waits`](super::Listener::waits) again: only a call
//! that still waits has kept the number of its thread (`seccomp_unotify(2)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The process of `thread`, as a pidfd: that of the thread itself where the kernel (6.9) has such, or else that of the
/// one of `leaders` whose thread it is.
///
/// # Errors
/// There is no such thread.
pub fn process_of(thread: i32, leaders: impl IntoIterator<Item = i32>) -> io::Result<OwnedFd> {
    pidfd_open(thread, libc::PIDFD_THREAD).or_else(|_| by_leader(thread, leaders))
}

/// As [`process_of`], where there are no pidfds of threads.
pub(super) fn by_leader(thread: i32, leaders: impl IntoIterator<Item = i32>) -> io::Result<OwnedFd> {
    pidfd_open(thread, 0).or_else(|error| {
        let leader = leaders.into_iter().find(|leader| is_thread_of(*leader, thread));
        pidfd_open(leader.ok_or(error)?, 0)
    })
}

fn pidfd_open(process: i32, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, process, flags) };
    owned(result)
}

/// Another descriptor of what the process has at `number`.
///
/// # Errors
/// It has nothing there (`EBADF`), is gone, or is not ours to look into.
pub fn copy_descriptor(process: impl AsFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_fd().as_raw_fd(), number, 0) };
    owned(result)
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this process, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

/// Whether `thread` is one of the threads of `process`.
pub fn is_thread_of(process: i32, thread: i32) -> bool {
    // SAFETY: tgkill takes integers; signal nought only asks.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 }
}

/// Copies memory of `process` at `address` into `buffer`, all of it.
///
/// # Errors
/// There is no such memory, or it is not ours to read.
pub fn read_memory(process: i32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `here` is writable for its length. `there` is never followed in this process: the kernel checks it
    // against the memory of the other.
    let got = unsafe { libc::process_vm_readv(process, &raw const here, 1, &raw const there, 1, 0) };
    whole(got, buffer.len())
}

/// Copies `bytes` into the memory of `process` at `address`, all of them.
///
/// # Errors
/// There is no such memory, or it is not ours to write.
pub fn write_memory(process: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
    // SAFETY: `here` is readable for its length and only read. `there` is never followed in this process: the kernel
    // checks it against the memory of the other.
    let put = unsafe { libc::process_vm_writev(process, &raw const here, 1, &raw const there, 1, 0) };
    whole(put, bytes.len())
}

fn whole(moved: isize, length: usize) -> io::Result<()> {
    match moved {
        -1 => Err(io::Error::last_os_error()),
        moved if moved as usize == length => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

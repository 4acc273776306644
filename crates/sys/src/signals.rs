//! Signals as descriptors, so that no code runs inside a signal handler.
//!
//! Runs in: the launcher (signalfd) and every child between fork and exec (reset). Sees no untrusted bytes. Never:
//! installs a handler (OpenSSH's CVE-2024-6387 is the price of handlers that do work). There are two elsewhere: one
//! does nothing (`foreign`), and one has its thread sleep (`pause`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The signals that the launcher takes as messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: end everything in order.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR2: put the programs that are installed now in the place of those that run.
    Upgrade,
    /// Anything else that was asked for: nothing to do.
    Other,
}

/// Blocks SIGTERM, SIGINT, SIGHUP, SIGUSR2 and SIGPIPE in this process and gives a descriptor on which they arrive.
pub fn signal_descriptor() -> io::Result<OwnedFd> {
    descriptor_of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR2, libc::SIGPIPE])
}

/// What a guard passes on to the command that it guards.
const PASSED_ON: [i32; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

/// Blocks the signals that a guard passes on, and SIGPIPE, and gives a descriptor on which they arrive.
pub fn guard_descriptor() -> io::Result<OwnedFd> {
    let mut signals = PASSED_ON.to_vec();
    signals.push(libc::SIGPIPE);
    descriptor_of(&signals)
}

/// A signal that somebody sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it. Otherwise the kernel did, as a terminal's keys do, to a whole group of processes.
    pub by_process: bool,
    /// Whether it asks to end.
    pub ends: bool,
}

fn descriptor_of(signals: &[i32]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set that `set` points to; the later calls only read or
    // change that initialised set, and a null old-set pointer is allowed by sigprocmask.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes the next signal from `descriptor`; `None` when there is none.
pub fn next_signal(descriptor: &OwnedFd) -> io::Result<Option<Signal>> {
    Ok(next(descriptor)?.map(|info| match info.ssi_signo as i32 {
        libc::SIGTERM | libc::SIGINT => Signal::Stop,
        libc::SIGHUP => Signal::Reload,
        libc::SIGUSR2 => Signal::Upgrade,
        _ => Signal::Other,
    }))
}

/// The same for a guard: the next signal that is to be passed on.
pub fn next_sent(descriptor: &OwnedFd) -> io::Result<Option<Sent>> {
    while let Some(info) = next(descriptor)? {
        let number = info.ssi_signo as i32;
        if PASSED_ON.contains(&number) {
            let ends = matches!(number, libc::SIGTERM | libc::SIGINT | libc::SIGQUIT);
            return Ok(Some(Sent { number, by_process: info.ssi_code <= 0, ends }));
        }
    }
    Ok(None)
}

fn next(descriptor: &OwnedFd) -> io::Result<Option<libc::signalfd_siginfo>> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: `info` is writable for `size` bytes, which is the length passed to read.
    let got = unsafe { libc::read(descriptor.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if got < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    if got as usize != size {
        return Ok(None);
    }
    // SAFETY: the kernel filled all `size` bytes, and every bit pattern is a valid signalfd_siginfo.
    Ok(Some(unsafe { info.assume_init() }))
}

/// Sets every signal to its default disposition and unblocks all: what a child starts with.
pub(crate) fn reset() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // The kernel's own form of a disposition, handler, flags, restorer and mask; all noughts is the default. The C
    // library's form does not reach the two signals that it keeps to itself, which whoever started us may ignore.
    let default = [0_u64; 4];
    // SAFETY: the kernel reads as many bytes as the structure has, with a mask of eight, and writes none through the
    // null pointer; the calls that fail (SIGKILL, SIGSTOP) change nothing. sigemptyset initialises the set before
    // sigprocmask reads it.
    unsafe {
        for signal in 1..=64 {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, size_of::<u64>());
        }
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}

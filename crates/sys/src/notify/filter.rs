//! The filters that have calls answered elsewhere.
//!
//! Runs in: a child of the guard's or the launcher's, between fork and exec. Sees no untrusted bytes. Never: allows
//! what another filter of the process refuses; the kernel does the strictest of what its filters say.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use rustix::thread::SecureComputingMode;

use super::CallKind;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Has `calls` of this thread and of all its descendants answered by the [`Listener`](super::Listener) that is made of
/// the descriptor which `hand_over` gets to pass on. For use in a child between fork and exec: from here on, a call
/// that is among them, such as closing a descriptor, waits for an answer. The descriptor itself stays open until exec.
///
/// # Errors
/// The kernel refused (it is older than 5.9, or this process may neither do that nor has given up new privileges), or
/// what `hand_over` failed with.
pub fn install(
    calls: &[CallKind],
    hand_over: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let numbers: Vec<_> = calls.iter().map(|call| call.number()).collect();
    let result =
        apply(program(&numbers, libc::SECCOMP_RET_USER_NOTIF)?, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: the kernel has just opened it for this process; nobody else knows of it, so nobody closes it before exec.
    hand_over(unsafe { BorrowedFd::borrow_raw(result as RawFd) })
}

/// Has this thread and all its descendants do without io_uring, as on a kernel that has none: what is read and written
/// by it passes every function of the C library by. For use in a child between fork and exec.
///
/// # Errors
/// The kernel refused: this process may neither do that nor has given up new privileges.
pub fn refuse_rings() -> io::Result<()> {
    let none = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    apply(program(&[libc::SYS_io_uring_setup], none)?, 0).map(drop)
}

/// Has all threads of this process and all their descendants make no code any more: no file and no memory becomes
/// executable from here on. For a process that has loaded what it runs. Does nothing in one that may gain privileges,
/// or has no filter of system calls: its jail was opened on purpose, and who looks from outside should see that.
///
/// # Errors
/// The kernel refused, or a thread has a filter that the others do not have.
pub fn refuse_new_code() -> io::Result<()> {
    let has_filter = rustix::thread::secure_computing_mode()? == SecureComputingMode::Filter;
    if !rustix::thread::no_new_privs()? || !has_filter {
        return Ok(());
    }
    let low = std::mem::offset_of!(libc::seccomp_data, args)
        + 2 * size_of::<u64>()
        + if cfg!(target_endian = "big") { 4 } else { 0 };
    let executable = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let filter = vec![
        step(LOAD, 0, 0, std::mem::offset_of!(libc::seccomp_data, arch) as u32),
        step(EQUAL, 0, 6, ARCHITECTURE),
        step(LOAD, 0, 0, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
        step(EQUAL, 2, 0, libc::SYS_mmap as u32),
        step(EQUAL, 1, 0, libc::SYS_mprotect as u32),
        step(EQUAL, 0, 2, libc::SYS_pkey_mprotect as u32),
        step(LOAD, 0, 0, low as u32),
        step(executable, 1, 0, libc::PROT_EXEC as u32),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    match apply(filter, libc::SECCOMP_FILTER_FLAG_TSYNC)? {
        0 => Ok(()),
        _ => Err(io::Error::other("a thread has a filter of its own")),
    }
}

fn apply(mut filter: Vec<libc::sock_filter>, flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let set = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` names as many instructions as `filter` has, and both live until the call returns; the kernel
    // copies and checks them.
    match unsafe { libc::syscall(libc::SYS_seccomp, set, flags, &raw const program) } {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// The filter: with the listed calls `action` is done, all others are allowed, those of another architecture as well.
fn program(calls: &[libc::c_long], action: u32) -> io::Result<Vec<libc::sock_filter>> {
    // A jump is a byte; nobody lists so many calls.
    let count = u8::try_from(calls.len()).map_err(io::Error::other)?;
    let mut steps = vec![
        step(LOAD, 0, 0, std::mem::offset_of!(libc::seccomp_data, arch) as u32),
        step(EQUAL, 0, count + 1, ARCHITECTURE),
        step(LOAD, 0, 0, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
    ];
    for (index, call) in (0..count).zip(calls) {
        steps.push(step(EQUAL, count - index, 0, *call as u32));
    }
    steps.push(step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(ANSWER, 0, 0, action));
    Ok(steps)
}

/// Has the calls by which a program connects answered by the [`Listener`](super::Listener) that is made of the
/// descriptor which `hand_over` gets to pass on: `connect`, and `socket` for IPv4 and IPv6. As [`install`], but for
/// signals: where the kernel (5.19) can, a call whose answer is on its way is interrupted by none that does not end the
/// process, as a runtime that sends its threads signals all the time would never get one through.
///
/// # Errors
/// As of [`install`].
pub fn install_network_calls(hand_over: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    let listen = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let result = match apply(network_program(), listen | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => apply(network_program(), listen)?,
        result => result?,
    };
    // SAFETY: the kernel has just opened it for this process; nobody else knows of it, so nobody closes it before exec.
    hand_over(unsafe { BorrowedFd::borrow_raw(result as RawFd) })
}

/// Sends a listener's descriptor to where [`take_over`](super::Listener::take_over) gets it.
pub fn hand_over(channel: impl AsFd, listener: BorrowedFd<'_>) -> io::Result<()> {
    crate::seqpacket::send(channel, b"l", Some(listener))
}

/// As [`program`]; of the first argument of `socket`, the kernel looks at the lower half only, and so does this.
fn network_program() -> Vec<libc::sock_filter> {
    let low =
        std::mem::offset_of!(libc::seccomp_data, args) + if cfg!(target_endian = "big") { 4 } else { 0 };
    vec![
        step(LOAD, 0, 0, std::mem::offset_of!(libc::seccomp_data, arch) as u32),
        step(EQUAL, 0, 6, ARCHITECTURE),
        step(LOAD, 0, 0, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
        step(EQUAL, 5, 0, libc::SYS_connect as u32),
        step(EQUAL, 0, 3, libc::SYS_socket as u32),
        step(LOAD, 0, 0, low as u32),
        step(EQUAL, 2, 0, libc::AF_INET as u32),
        step(EQUAL, 1, 0, libc::AF_INET6 as u32),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
    ]
}

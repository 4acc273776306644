//! What can be done with a descriptor that the process holds.
//!
//! Runs in: the probe. Never: takes a byte out of a descriptor or puts one in: buffers are at an address that nobody
//! can use. Connecting to nobody ends a client's connection where it is let through, which is then what the sweep
//! has found.

use super::{CallAttempt, Form, NONE, NOWHERE};
use libc as l;

/// Addresses as the kernel reads them: no family, and port 2 of 127.0.0.1.
static NOBODY: [u8; 16] = [0; 16];
static LOOPBACK: [u8; 16] = [l::AF_INET as u8, 0, 0, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
static ABOVE: &std::ffi::CStr = c"..";

const READ: u64 = l::PROT_READ as u64;
const WRITE: u64 = l::PROT_WRITE as u64;
const EXECUTE: u64 = l::PROT_EXEC as u64;
const QUIETLY: u64 = (l::MSG_DONTWAIT | l::MSG_NOSIGNAL) as u64;
const NOW: u64 = l::MSG_DONTWAIT as u64;

/// Every operation on the descriptor `number`.
pub fn on(number: i32) -> Vec<CallAttempt> {
    let fd = i64::from(number) as u64;
    let (nobody, loopback) = (NOBODY.as_ptr() as u64, LOOPBACK.as_ptr() as u64);
    let (above, folder) = (ABOVE.as_ptr() as u64, (l::O_DIRECTORY | l::O_NONBLOCK | l::O_CLOEXEC) as u64);
    let (shared, private) = (l::MAP_SHARED as u64, l::MAP_PRIVATE as u64);
    let fast = (l::MSG_FASTOPEN as u64) | QUIETLY;
    let urgent = (l::MSG_OOB as u64) | QUIETLY;
    let operations: &[(&'static str, i64, [u64; 6])] = &[
        ("read", l::SYS_read, [fd, NOWHERE, 1, 0, 0, 0]),
        ("write", l::SYS_write, [fd, NOWHERE, 1, 0, 0, 0]),
        ("recv", l::SYS_recvfrom, [fd, NOWHERE, 1, NOW, 0, 0]),
        ("recvmsg", l::SYS_recvmsg, [fd, NOWHERE, NOW, 0, 0, 0]),
        ("send", l::SYS_sendto, [fd, NOWHERE, 1, QUIETLY, 0, 0]),
        ("send-to", l::SYS_sendto, [fd, NOWHERE, 1, QUIETLY, loopback, 16]),
        ("send-fastopen", l::SYS_sendto, [fd, NOWHERE, 1, fast, loopback, 16]),
        ("send-urgent", l::SYS_sendto, [fd, NOWHERE, 1, urgent, 0, 0]),
        ("sendmsg", l::SYS_sendmsg, [fd, NOWHERE, QUIETLY, 0, 0, 0]),
        ("getsockname", l::SYS_getsockname, [fd, 0, 0, 0, 0, 0]),
        ("getpeername", l::SYS_getpeername, [fd, 0, 0, 0, 0, 0]),
        // Of these no end has the number 3.
        ("shutdown", l::SYS_shutdown, [fd, 3, 0, 0, 0, 0]),
        ("listen", l::SYS_listen, [fd, 0, 0, 0, 0, 0]),
        ("accept", l::SYS_accept4, [fd, 0, 0, l::SOCK_NONBLOCK as u64, 0, 0]),
        ("bind-loopback", l::SYS_bind, [fd, loopback, 16, 0, 0, 0]),
        ("connect-loopback", l::SYS_connect, [fd, loopback, 16, 0, 0, 0]),
        ("connect-nobody", l::SYS_connect, [fd, nobody, 16, 0, 0, 0]),
        ("fstat", l::SYS_fstat, [fd, 0, 0, 0, 0, 0]),
        ("fchdir", l::SYS_fchdir, [fd, 0, 0, 0, 0, 0]),
        ("openat-above", l::SYS_openat, [fd, above, folder, 0, 0, 0]),
        ("dup", l::SYS_dup, [fd, 0, 0, 0, 0, 0]),
        // A length below nought.
        ("ftruncate", l::SYS_ftruncate, [fd, NONE, 0, 0, 0, 0]),
        // To nobody else: who owns it stays.
        ("fchown", l::SYS_fchown, [fd, NONE, NONE, 0, 0, 0]),
        ("fsync", l::SYS_fsync, [fd, 0, 0, 0, 0, 0]),
        ("fionread", l::SYS_ioctl, [fd, l::FIONREAD, NOWHERE, 0, 0, 0]),
        ("siocgifconf", l::SYS_ioctl, [fd, 0x8912, NOWHERE, 0, 0, 0]),
        ("mmap-read", l::SYS_mmap, [0, 4096, READ, shared, fd, 0]),
        ("mmap-write", l::SYS_mmap, [0, 4096, READ | WRITE, shared, fd, 0]),
        ("mmap-execute", l::SYS_mmap, [0, 4096, READ | EXECUTE, private, fd, 0]),
        // From and to where nothing is.
        ("splice", l::SYS_splice, [fd, 0, NONE, 0, 1, 0]),
        ("tee", l::SYS_tee, [fd, NONE, 1, 0, 0, 0]),
        ("sendfile", l::SYS_sendfile, [NONE, fd, 0, 1, 0, 0]),
    ];
    let line = |(at, &(name, call, arguments)): (usize, &(&'static str, i64, [u64; 6]))| CallAttempt {
        topic: "on a descriptor".into(),
        value: at as u64,
        form: Form::Word(name),
        call,
        arguments,
        left_out: false,
    };
    operations.iter().enumerate().map(line).collect()
}

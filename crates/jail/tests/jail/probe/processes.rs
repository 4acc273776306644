//! Attempts on processes, and on what one process may have.
//!
//! Runs in: the probe. Never: sends a signal to another process (only asks whether it could).

use std::io;
use std::time::Duration;

use sys::attempt::{Arg, calls, child, odd};

use super::{Attempt, finding, name_of};

/// They take a pid, a number, or nothing.
pub const ATTEMPTS: &[Attempt] = &[
    ("signal", |pid| finding(calls::KILL.make(&mut [number(pid), Arg::Int(0)]))),
    ("seize", |pid| {
        finding(calls::PTRACE.make(&mut [Arg::Int(0x4206), number(pid), Arg::Int(0), Arg::Int(0)]))
    }),
    ("fork", |_| child::fork_many(1).1.map_or("ok".into(), |error| name_of(&error.into()))),
    ("thread", thread),
    ("clone", |flags| finding(child::clone_with(hexadecimal(flags)))),
    ("clone3", |flags| finding(child::clone3_with(hexadecimal(flags)))),
    ("int80", |_| aside(odd::getpid_by_int80)),
    ("x32", |_| aside(odd::getpid_by_x32)),
    ("ptrace-high-bits", |_| finding(odd::ptrace_with_high_bits())),
    ("in-thread", |_| std::thread::spawn(personality).join().unwrap_or_else(|_| "panic".into())),
    ("in-child", |_| aside(|| calls::PERSONALITY.make(&mut [Arg::Int(0xFFFF_FFFF)]))),
    ("map", |bytes| map(bytes.parse().expect("a number"))),
    ("descriptors", |_| open_until_refused().to_string()),
    ("ways-out", |_| ways_out()),
];

fn number(text: &str) -> Arg<'static> {
    Arg::Int(text.parse().expect("a number"))
}

pub(super) fn hexadecimal(text: &str) -> i64 {
    i64::from_str_radix(text, 16).expect("a hexadecimal number")
}

/// A question that is on no list.
fn personality() -> String {
    finding(calls::PERSONALITY.make(&mut [Arg::Int(0xFFFF_FFFF)]))
}

fn thread(_: &str) -> String {
    finding(std::thread::Builder::new().spawn(|| {}).map(|thread| thread.join().is_ok()))
}

/// What became of a call that may end the process.
fn aside(call: fn() -> Result<i64, sys::attempt::Errno>) -> String {
    match child::isolated(Duration::from_secs(5), || finding(call()).into_bytes()) {
        Ok(ended) => match ended.signal {
            Some(libc::SIGSYS) => "SIGSYS".into(),
            Some(signal) => format!("signal {signal}"),
            None => String::from_utf8_lossy(&ended.bytes).into_owned(),
        },
        Err(error) => format!("not tried: {error}"),
    }
}

fn map(bytes: usize) -> String {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory in use.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    if mapped == libc::MAP_FAILED { name_of(&io::Error::last_os_error()) } else { "ok".into() }
}

/// How many descriptors can be had besides those that are open; at most 4096 are tried.
fn open_until_refused() -> usize {
    let duplicates = std::iter::from_fn(|| odd::duplicate(1));
    duplicates.take(4096).collect::<Vec<_>>().len()
}

/// How many ways back to privilege are refused, and the names of those that are not.
fn ways_out() -> String {
    let gids: [libc::gid_t; 1] = [0];
    let no = std::ptr::null();
    // SAFETY: each call takes integers, C string literals, null where that is allowed, or a pointer to the array
    // above with its length, and none keeps them. What they change, should one succeed, is this process, which
    // ends after.
    let results = unsafe {
        [
            ("setuid_0", libc::setuid(0)),
            ("setgid_0", libc::setgid(0)),
            ("setresuid_0", libc::setresuid(0, 0, 0)),
            ("setresgid_0", libc::setresgid(0, 0, 0)),
            ("setgroups_0", libc::setgroups(1, gids.as_ptr())),
            ("chroot", libc::chroot(c".".as_ptr())),
            ("mount_namespace", libc::unshare(libc::CLONE_NEWNS)),
            ("mount", libc::mount(c"none".as_ptr(), c"/".as_ptr(), c"tmpfs".as_ptr(), 0, no)),
            ("mknod", libc::mknod(c"/disk".as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(254, 0))),
            ("mkdir", libc::mkdir(c"/new".as_ptr(), 0o700)),
            ("open_passwd", libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY)),
            ("open_above", libc::open(c"../../../../etc/passwd".as_ptr(), libc::O_RDONLY)),
            ("open_proc", libc::open(c"/proc/1/root".as_ptr(), libc::O_RDONLY)),
            ("terminal", libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR)),
            ("keep_capabilities", libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0)),
            ("ambient_raise", libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, 10, 0, 0)),
            ("securebits_clear", libc::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0)),
            ("no_new_privs_clear", libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)),
            ("core_file", raise_limit(libc::RLIMIT_CORE)),
            ("more_descriptors", raise_limit(libc::RLIMIT_NOFILE)),
        ]
    };
    let succeeded: Vec<_> =
        results.iter().filter(|(_, result)| *result >= 0).map(|(name, _)| *name).collect();
    if succeeded.is_empty() { format!("{} refused", results.len()) } else { succeeded.join(" ") }
}

/// Tries to raise a limit by one.
fn raise_limit(resource: libc::__rlimit_resource_t) -> i32 {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `now` is a writable rlimit for the first call and a readable one for the second.
    unsafe {
        libc::getrlimit(resource, &raw mut now);
        now.rlim_max = now.rlim_max.saturating_add(1);
        libc::setrlimit(resource, &raw const now)
    }
}

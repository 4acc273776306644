//! Attempts on parts of the kernel that no program of a partition needs.
//!
//! Runs in: the probe. Never: does lasting harm where a call is let through: the tables of `sys::attempt` see to it.

use rustix::fs::MemfdFlags;
use sys::attempt::{Arg, Errno, calls, memory};

use super::processes::hexadecimal;
use super::{Attempt, finding};

/// They take a number, or nothing.
pub const ATTEMPTS: &[Attempt] = &[
    ("name", |_| rustix::system::uname().nodename().to_string_lossy().into_owned()),
    ("key", key),
    ("segment", |key| finding(calls::SHMGET.make(&mut [number(key), Arg::Int(0), Arg::Int(0)]))),
    ("unshare", |flags| finding(calls::UNSHARE.make(&mut [Arg::Int(hexadecimal(flags))]))),
    ("setns", |_| finding(calls::SETNS.make(&mut [Arg::Int(-1), Arg::Int(0)]))),
    ("mount", mount),
    ("fsopen", |_| finding(calls::FSOPEN.make(&mut [Arg::Text("tmpfs"), Arg::Int(0)]))),
    ("chroot", |path| finding(calls::CHROOT.make(&mut [Arg::Text(path)]))),
    ("keyctl", keyctl),
    ("io_uring", |_| finding(calls::IO_URING_SETUP.make(&mut [Arg::Int(1), Arg::Bytes(&[])]))),
    ("bpf", bpf),
    ("perf", perf),
    ("userfaultfd", |_| finding(calls::USERFAULTFD.make(&mut [Arg::Int(0)]))),
    ("personality", |_| finding(calls::PERSONALITY.make(&mut [Arg::Int(0xFFFF_FFFF)]))),
    ("modify_ldt", |_| finding(calls::MODIFY_LDT.make(&mut [Arg::Int(0), Arg::Bytes(&[0; 8]), Arg::Len(1)]))),
    ("hostname", |_| finding(calls::SETHOSTNAME.make(&mut [Arg::Text("other"), Arg::Len(0)]))),
    ("read-of-process", |_| finding(memory::of_process(1, 0, &mut [0; 8]))),
    ("pidfd_getfd", |_| finding(calls::PIDFD_GETFD.make(&mut [Arg::Int(-1), Arg::Int(0), Arg::Int(0)]))),
    ("shared-memory", |_| finding(calls::SHMGET.make(&mut [Arg::Int(0), Arg::Int(1), Arg::Int(0o600)]))),
    ("seccomp", |_| finding(calls::SECCOMP_QUERY.make(&mut [Arg::Int(2), Arg::Int(0), Arg::Bytes(&[0; 4])]))),
    ("writable-code", |_| finding(memory::writable_and_executable())),
    ("late-code", |_| finding(memory::executable_later())),
    ("code-of-nothing", |_| finding(memory::executable())),
    ("code-of-own-file", code_of_own_file),
    ("outlive", |_| finding(rustix::process::set_parent_process_death_signal(None))),
    ("memfd-of-code", |_| finding(rustix::fs::memfd_create("code", MemfdFlags::EXEC))),
    ("memfd-of-data", |_| finding(rustix::fs::memfd_create("data", MemfdFlags::NOEXEC_SEAL))),
];

/// A file without a name, which can never be executed as a program, mapped as code.
fn code_of_own_file(_: &str) -> String {
    let made = rustix::fs::memfd_create("code", MemfdFlags::NOEXEC_SEAL);
    let file = made.and_then(|file| rustix::io::write(&file, b"\xc3").map(|_| file));
    finding(file.and_then(|file| memory::file_mapped(&file, true)))
}

fn number(text: &str) -> Arg<'static> {
    Arg::Int(text.parse().expect("a number"))
}

/// Looks for the key of the launcher's in its own session.
fn key(_: &str) -> String {
    finding(find_key())
}

fn find_key() -> Result<i64, Errno> {
    const SEARCH: i32 = 10;
    const OWN_SESSION: i32 = -3;
    let (kind, name) = (c"user", crate::process::KEY);
    // SAFETY: both are C strings; with no destination the kernel only looks.
    let found =
        unsafe { libc::syscall(libc::SYS_keyctl, SEARCH, OWN_SESSION, kind.as_ptr(), name.as_ptr(), 0) };
    if found >= 0 {
        return Ok(found);
    }
    Err(Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)))
}

fn keyctl(_: &str) -> String {
    let none = || Arg::Int(0);
    finding(calls::KEYCTL_NUMBERS.make(&mut [none(), Arg::Int(-3), Arg::Int(1), none(), none()]))
}

/// Mounts over a directory of its own view.
fn mount(path: &str) -> String {
    let arguments = &mut [Arg::Text("none"), Arg::Text(path), Arg::Text("tmpfs"), Arg::Int(0), Arg::Null];
    finding(calls::MOUNT.make(arguments))
}

/// Makes a map: an array of one value of eight bytes.
fn bpf(_: &str) -> String {
    let [array, key_bytes, value_bytes, entries] = [2_u32, 4, 8, 1].map(u32::to_ne_bytes);
    let what = [array, key_bytes, value_bytes, entries].concat();
    finding(calls::BPF.make(&mut [Arg::Int(0), Arg::Bytes(&what), Arg::Len(1)]))
}

fn perf(_: &str) -> String {
    let all = [Arg::Null, Arg::Int(0), Arg::Int(-1), Arg::Int(-1), Arg::Int(0)];
    finding(calls::PERF_EVENT_OPEN.make(&mut { all }))
}

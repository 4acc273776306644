//! The prisoner: tells what it is and tries to get out.
//!
//! Runs in: the jail under test, as its program. It is the same file as the test, under another zeroth argument,
//! so it is linked statically as every program of ours and starts in an empty root.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

/// What to do in the jail.
pub const TELL: &str = "probe: tell";
/// As [`TELL`], after trying to get out.
pub const ESCAPE: &str = "probe: escape";
/// As [`TELL`], and then to stay for as long as it is let.
pub const STAY: &str = "probe: stay";

/// A probe that nobody ends, ends by itself after this many seconds.
const LIFETIME_S: u32 = 20;

/// Writes one line a finding, `name value`, to descriptor 1, then a line with a dot, then waits to be dismissed.
pub fn run(errand: &str) -> ExitCode {
    // SAFETY: alarm takes an integer.
    unsafe { libc::alarm(LIFETIME_S) };
    let mut lines = facts();
    if errand == ESCAPE {
        lines.extend(escapes().iter().map(|(name, result)| format!("{name} {}", outcome(*result))));
        lines.push(format!("fork {}", try_fork()));
        lines.push(format!("map_128_mib {}", try_map(128 << 20)));
        lines.push(format!("descriptors_more {}", open_until_refused()));
    }
    lines.push(".\n".into());
    if io::stdout().write_all(lines.join("\n").as_bytes()).is_err() {
        return ExitCode::FAILURE;
    }
    if errand == STAY {
        loop {
            std::thread::park();
        }
    }
    let _ = io::stdin().lock().read_line(&mut String::new());
    ExitCode::SUCCESS
}

/// What the process knows about itself that `/proc` does not show.
fn facts() -> Vec<String> {
    let mut signal = 0;
    // SAFETY: PR_GET_PDEATHSIG writes one int to the pointer, which is to one; the other takes integers.
    let securebits = unsafe {
        libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal);
        libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0)
    };
    let names = |entries: std::fs::ReadDir| entries.flatten().count().to_string();
    vec![
        format!("parent_death_signal {signal}"),
        format!("securebits {securebits:#x}"),
        format!("arguments {}", std::env::args().count()),
        format!("environment {}", std::env::vars_os().count()),
        format!("entries_of_root {}", std::fs::read_dir("/").map_or("?".into(), names)),
        format!("entries_above {}", std::fs::read_dir("../../..").map_or("?".into(), names)),
    ]
}

/// Every way out that is tried, and what the kernel answered.
fn escapes() -> Vec<(&'static str, i32)> {
    let gids: [libc::gid_t; 1] = [0];
    // SAFETY: each call takes integers, C string literals, or a pointer to the array above with its length, and
    // none keeps them. What they change, should one succeed, is this process, which ends after.
    unsafe {
        let parent = libc::getppid();
        [
            ("setuid_0", libc::setuid(0)),
            ("setgid_0", libc::setgid(0)),
            ("setresuid_0", libc::setresuid(0, 0, 0)),
            ("setresgid_0", libc::setresgid(0, 0, 0)),
            ("setgroups_0", libc::setgroups(1, gids.as_ptr())),
            ("chroot", libc::chroot(c".".as_ptr())),
            ("user_namespace", libc::unshare(libc::CLONE_NEWUSER)),
            ("mount_namespace", libc::unshare(libc::CLONE_NEWNS)),
            ("mount", libc::mount(c"none".as_ptr(), c"/".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null())),
            ("mknod", libc::mknod(c"/disk".as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(254, 0))),
            ("mkdir", libc::mkdir(c"/new".as_ptr(), 0o700)),
            ("open_passwd", libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY)),
            ("open_above", libc::open(c"../../../../etc/passwd".as_ptr(), libc::O_RDONLY)),
            ("open_proc", libc::open(c"/proc/1/root".as_ptr(), libc::O_RDONLY)),
            ("terminal", libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR)),
            ("signal_init", libc::kill(1, 0)),
            ("signal_parent", libc::kill(parent, 0)),
            ("trace_parent", libc::ptrace(libc::PTRACE_SEIZE, parent, std::ptr::null_mut::<()>(), 0) as i32),
            ("keep_capabilities", libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0)),
            ("ambient_raise", libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, 10, 0, 0)),
            ("securebits_clear", libc::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0)),
            ("no_new_privs_clear", libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)),
            ("core_file", raise_limit(libc::RLIMIT_CORE)),
            ("more_descriptors", raise_limit(libc::RLIMIT_NOFILE)),
        ]
        .to_vec()
    }
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

fn outcome(result: i32) -> &'static str {
    if result < 0 { "refused" } else { "SUCCEEDED" }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn try_fork() -> String {
    // SAFETY: this process has one thread; its child does nothing but end.
    match unsafe { libc::fork() } {
        -1 => format!("errno {}", errno()),
        // SAFETY: _exit has no precondition.
        0 => unsafe { libc::_exit(0) },
        child => {
            // SAFETY: a null status pointer is allowed.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            "SUCCEEDED".into()
        }
    }
}

fn try_map(bytes: usize) -> String {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory in use.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    if mapped == libc::MAP_FAILED { format!("errno {}", errno()) } else { "SUCCEEDED".into() }
}

/// How many descriptors can be had besides those that are open; at most 4096 are tried.
fn open_until_refused() -> usize {
    let mut had = Vec::new();
    while had.len() < 4096 {
        // SAFETY: dup takes an integer.
        let new = unsafe { libc::dup(1) };
        if new < 0 {
            break;
        }
        had.push(new);
    }
    for number in &had {
        // SAFETY: the number came from dup above and nobody else knows it.
        unsafe { libc::close(*number) };
    }
    had.len()
}

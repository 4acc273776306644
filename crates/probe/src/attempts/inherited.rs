//! A: what the process was given by whoever started it, besides limits and identity.
//!
//! Runs in: the probe. Never: changes what it looks at without putting it back.

use rustix::fs::{FileType, Mode};
use rustix::process::{getpid, umask};
use sys::attempt::{Arg, calls, odd};

use crate::attempt::{
    Attempt, AttemptOutcome, Cx, any, attempt, not_applicable, refused, short, succeeded, tried,
};
use crate::{look, memory};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('A', "fds-more", "descriptors beyond the declared ones", "descriptors", more).here(),
    attempt('A', "fds-listening", "a listening socket among the descriptors", "descriptors", listening)
        .here(),
    attempt('A', "fds-directory", "a directory among the descriptors", "descriptors", directory).here(),
    attempt('A', "fds-file", "a file that can be written among the descriptors", "descriptors", file).here(),
    attempt('A', "fds-reopen", "open a descriptor again, for more, by /proc/self/fd", "root", reopen).here(),
    attempt('A', "environment", "variables in the environment", "descriptors", environment).here(),
    attempt('A', "cwd", "start in a folder other than the root", "root", cwd).here().services_may(),
    attempt('A', "umask", "make files that others can read", "session", mask).here(),
    attempt('A', "signal-mask", "signals that are blocked from the start", "session", signal_mask).here(),
    attempt('A', "signal-dispositions", "signals that are ignored from the start", "session", dispositions)
        .here(),
    attempt('A', "session", "share a session with another process", "session", session).here(),
    attempt('A', "terminal", "a controlling terminal", "session", terminal).here(),
    attempt('A', "parent-death", "outlive the launcher", "parent death", parent_death).here(),
    attempt('A', "no-new-privs", "gain privileges by executing a program", "no_new_privs", new_privileges)
        .here(),
    attempt('A', "dumpable", "be read by others of the same uid", "dumpable", dumpable).here(),
    attempt('A', "seccomp-mode", "a thread without a filter for system calls", "seccomp", seccomp_mode)
        .here(),
    attempt('A', "keyring", "see a session keyring", "seccomp", keyring),
    attempt(
        'A',
        "canaries",
        "secrets of the launcher and of siblings in own memory",
        "exec",
        memory::canaries,
    )
    .here(),
];

fn more(cx: &Cx<'_>) -> AttemptOutcome {
    let found = look::open_descriptors().into_iter().filter(|fd| !cx.hints.fds.contains(fd));
    let found: Vec<String> = found.map(look::describe).collect();
    if found.is_empty() { refused("none beyond the declared ones") } else { succeeded(short(&found)) }
}

fn listening(_: &Cx<'_>) -> AttemptOutcome {
    let sockets = look::descriptors_of(FileType::Socket);
    let found: Vec<i32> = sockets
        .iter()
        .filter(|(_, socket)| rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(false))
        .map(|(number, _)| *number)
        .collect();
    if found.is_empty() { refused("none") } else { succeeded(short(&found)) }
}

fn directory(_: &Cx<'_>) -> AttemptOutcome {
    let found = look::descriptors_of(FileType::Directory);
    let found: Vec<String> = found.iter().map(|(number, _)| look::describe(*number)).collect();
    if found.is_empty() { refused("none") } else { succeeded(short(&found)) }
}

fn file(_: &Cx<'_>) -> AttemptOutcome {
    let writable = |fd: &std::os::fd::OwnedFd| {
        let flags = rustix::fs::fcntl_getfl(fd).unwrap_or(rustix::fs::OFlags::RDONLY);
        flags.intersects(rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::RDWR)
    };
    let found = look::descriptors_of(FileType::RegularFile);
    let found: Vec<String> = found
        .iter()
        .filter(|(_, descriptor)| writable(descriptor))
        .map(|(number, _)| look::describe(*number))
        .collect();
    if found.is_empty() { refused("none") } else { succeeded(short(&found)) }
}

fn reopen(_: &Cx<'_>) -> AttemptOutcome {
    let paths = look::open_descriptors().into_iter().map(|number| format!("/proc/self/fd/{number}"));
    any(paths, |path| tried(look::open(path, true)))
}

fn environment(_: &Cx<'_>) -> AttemptOutcome {
    let names: Vec<String> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    if names.is_empty() { refused("empty") } else { succeeded(short(&names)) }
}

fn cwd(_: &Cx<'_>) -> AttemptOutcome {
    match std::env::current_dir() {
        Ok(folder) if folder.as_os_str() == "/" => refused("it is the root"),
        Ok(folder) => succeeded(folder.display()),
        Err(error) => tried::<(), _>(Err(error)),
    }
}

fn mask(_: &Cx<'_>) -> AttemptOutcome {
    let now = umask(Mode::from_raw_mode(0o077));
    umask(now);
    let detail = format!("umask {:03o}", now.as_raw_mode());
    if now.as_raw_mode() & 0o077 == 0o077 { refused(detail) } else { succeeded(detail) }
}

fn signal_mask(_: &Cx<'_>) -> AttemptOutcome {
    let blocked = odd::blocked_signals();
    let signals: Vec<u32> = (0..64).filter(|bit| blocked >> bit & 1 == 1).map(|bit| bit + 1).collect();
    if signals.is_empty() { refused("none blocked") } else { succeeded(short(&signals)) }
}

/// Rust's standard library ignores SIGPIPE and watches SIGSEGV and SIGBUS by itself.
fn dispositions(_: &Cx<'_>) -> AttemptOutcome {
    const SIGPIPE: i32 = 13;
    let (ignored, _) = odd::handled_signals();
    let ignored: Vec<i32> = ignored.into_iter().filter(|signal| *signal != SIGPIPE).collect();
    if ignored.is_empty() { refused("all by default") } else { succeeded(short(&ignored)) }
}

/// The call itself: a leader outside of this PID namespace has the number 0, which a library takes for impossible.
fn session(_: &Cx<'_>) -> AttemptOutcome {
    match calls::GETSID.make(&mut [Arg::Int(0)]) {
        Err(errno) => tried::<(), _>(Err(errno)),
        Ok(0) => succeeded("its leader is outside of this PID namespace"),
        Ok(leader) if leader == i64::from(getpid().as_raw_pid()) => refused("it leads its own"),
        Ok(leader) => succeeded(format!("its leader is {leader}")),
    }
}

fn terminal(_: &Cx<'_>) -> AttemptOutcome {
    let opened = look::open("/dev/tty", true);
    let found: Vec<i32> = look::open_descriptors()
        .into_iter()
        .filter(|&number| odd::duplicate(number).is_some_and(|copy| rustix::termios::isatty(&copy)))
        .collect();
    if found.is_empty() { tried(opened) } else { succeeded(format!("descriptor {}", short(&found))) }
}

fn parent_death(_: &Cx<'_>) -> AttemptOutcome {
    match rustix::process::parent_process_death_signal() {
        Err(errno) => tried::<(), _>(Err(errno)),
        Ok(Some(signal)) => refused(format!("signal {} ends it", signal.as_raw())),
        Ok(None) => succeeded("nothing ends it"),
    }
}

fn new_privileges(_: &Cx<'_>) -> AttemptOutcome {
    match rustix::thread::no_new_privs() {
        Err(errno) => tried::<(), _>(Err(errno)),
        Ok(true) => refused("no_new_privs is set"),
        Ok(false) => succeeded("no_new_privs is not set"),
    }
}

/// PR_GET_DUMPABLE.
fn dumpable(_: &Cx<'_>) -> AttemptOutcome {
    let none = || Arg::Int(0);
    match calls::PRCTL_GET.make(&mut [Arg::Int(3), none(), none(), none(), none()]) {
        Err(errno) => tried::<(), _>(Err(errno)),
        Ok(1) => succeeded("dumpable is 1"),
        Ok(value) => refused(format!("dumpable is {value}")),
    }
}

/// PR_GET_SECCOMP for this thread, and `/proc` for the others.
fn seccomp_mode(_: &Cx<'_>) -> AttemptOutcome {
    const FILTER: i64 = 2;
    let none = || Arg::Int(0);
    let own = calls::PRCTL_GET.make(&mut [Arg::Int(21), none(), none(), none(), none()]);
    let mut without = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        if mode.is_some_and(|mode| mode.trim() != "2") {
            without.push(task.file_name().to_string_lossy().into_owned());
        }
    }
    match own {
        _ if !without.is_empty() => succeeded(format!("thread {}", short(&without))),
        Ok(FILTER) => refused("mode 2"),
        Ok(mode) => succeeded(format!("mode {mode}")),
        // The mode is asked for by a call that a filter may refuse, which shows that there is one.
        Err(errno) => crate::attempt::denied(errno, "a filter refuses the question"),
    }
}

/// KEYCTL_GET_KEYRING_ID of the session, making none.
fn keyring(_: &Cx<'_>) -> AttemptOutcome {
    const SESSION: i64 = -3;
    let none = || Arg::Int(0);
    let found = calls::KEYCTL_NUMBERS.make(&mut [none(), Arg::Int(SESSION), none(), none(), none()]);
    match found {
        Ok(serial) => succeeded(format!("keyring {serial}")),
        Err(errno) if errno == sys::attempt::Errno::NOKEY => not_applicable("there is none"),
        Err(errno) => tried::<(), _>(Err(errno)),
    }
}

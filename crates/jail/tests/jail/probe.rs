//! The prisoner: tells what it is and tries to get out.
//!
//! Runs in: the jail under test, as its program. It is the same file as the test, under another zeroth argument,
//! so it is linked statically as every program of ours and starts in an empty root. What it is to try are its
//! further arguments: `attempt parameters`, from the tables of the modules below.

mod files;
mod kernel;
mod network;
mod processes;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

/// To tell what it is and what became of its attempts.
pub const TELL: &str = "probe: tell";
/// As [`TELL`], and then to stay for as long as it is let.
pub const STAY: &str = "probe: stay";

/// A probe that nobody ends, ends by itself after this many seconds.
const LIFETIME_S: u32 = 30;

/// An attempt's name, and what makes it with the parameters that it gets and says what it found.
type Attempt = (&'static str, fn(&str) -> String);

/// Writes one line a finding, `name<tab>value`, to descriptor 1, then a line with a dot, then waits to be dismissed.
pub fn run(errand: &str) -> ExitCode {
    end_in_time();
    let mut lines = facts();
    lines.extend(std::env::args().skip(1).map(|what| format!("{what}\t{}", attempt(&what))));
    lines.push(".\n".into());
    if io::stdout().write_all(lines.join("\n").as_bytes()).is_err() {
        return ExitCode::FAILURE;
    }
    if errand == STAY {
        std::thread::sleep(Duration::from_secs(LIFETIME_S.into()));
    }
    let _ = io::stdin().lock().read_line(&mut String::new());
    ExitCode::SUCCESS
}

/// A handler, as the first process of a PID namespace is not ended by what it does not handle.
fn end_in_time() {
    extern "C" fn end(_: i32) {
        // SAFETY: _exit may be called in a handler.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: the handler does nothing but end the process; alarm takes an integer.
    unsafe {
        libc::signal(libc::SIGALRM, end as extern "C" fn(i32) as libc::sighandler_t);
        libc::alarm(LIFETIME_S);
    }
}

/// What the process knows about itself that `/proc` does not show.
fn facts() -> Vec<String> {
    let mut signal = 0;
    // SAFETY: PR_GET_PDEATHSIG writes one int to the pointer, which is to one; the other takes integers.
    let securebits = unsafe {
        libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal);
        libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0)
    };
    vec![
        format!("parent_death_signal\t{signal}"),
        format!("securebits\t{securebits:#x}"),
        format!("arguments\t{}", std::env::args().count()),
        format!("environment\t{}", std::env::vars_os().count()),
        format!("pids\t{} {}", std::process::id(), std::os::unix::process::parent_id()),
    ]
}

fn attempt(what: &str) -> String {
    let (name, parameters) = what.split_once(' ').unwrap_or((what, ""));
    let tables = [files::ATTEMPTS, kernel::ATTEMPTS, network::ATTEMPTS, processes::ATTEMPTS];
    let known = tables.into_iter().flatten().find(|(known, _)| *known == name);
    let (_, make) = known.unwrap_or_else(|| panic!("there is no attempt {name}"));
    make(parameters)
}

/// `ok`, or the name of what the kernel said.
fn finding<T, E: Into<io::Error>>(result: Result<T, E>) -> String {
    result.map_or_else(|error| name_of(&error.into()), |_| "ok".into())
}

fn name_of(error: &io::Error) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EBADF, "EBADF"),
        (libc::ENOEXEC, "ENOEXEC"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENETUNREACH, "ENETUNREACH"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ENOKEY, "ENOKEY"),
    ];
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("errno {number}"), |(_, name)| (*name).into())
}

//! Attempts on files.
//!
//! Runs in: the probe. Never: writes outside of what its test names.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use sys::attempt::{child, odd};

use super::{Attempt, finding};

/// They take a path, if not said otherwise; the last takes nothing.
pub const ATTEMPTS: &[Attempt] = &[
    ("open", |path| finding(File::open(path))),
    ("write", |path| finding(OpenOptions::new().write(true).create(true).truncate(false).open(path))),
    ("mkdir", |path| finding(std::fs::create_dir(path))),
    ("list", list),
    ("climb", climb),
    ("flags", flags),
    ("execute", execute),
    ("program", program),
    ("chmod", chmod),
    ("fill", fill),
    ("crowd", crowd),
    ("status", status),
    ("lower-oom-score", |_| finding(sys::oom::own().and_then(|own| sys::oom::set(own - 1)))),
];

/// The names in a directory.
fn list(path: &str) -> String {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten(),
        Err(error) => return finding::<(), _>(Err(error)),
    };
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if names.is_empty() { "(nothing)".into() } else { names.join(" ") }
}

/// Opens a file of the machine's by going up from the descriptor with this number.
fn climb(number: &str) -> String {
    let number = number.parse().expect("a number");
    let Some(directory) = odd::duplicate(number) else { return "closed".into() };
    finding(rustix::fs::openat(&directory, "../../../../../../etc/passwd", OFlags::RDONLY, Mode::empty()))
}

/// What the mount forbids.
fn flags(path: &str) -> String {
    let set = match rustix::fs::statvfs(path) {
        Ok(status) => status.f_flag,
        Err(error) => return finding::<(), _>(Err(error)),
    };
    let names = [
        (StatVfsMountFlags::RDONLY, "ro"),
        (StatVfsMountFlags::NOSUID, "nosuid"),
        (StatVfsMountFlags::NODEV, "nodev"),
        (StatVfsMountFlags::NOEXEC, "noexec"),
    ];
    let names: Vec<_> = names.iter().filter(|(flag, _)| set.contains(*flag)).map(|(_, name)| *name).collect();
    names.join(" ")
}

/// Executes a file that is no program: ENOEXEC is what only those are told who may.
fn execute(path: &str) -> String {
    let path = std::ffi::CString::new(path).expect("no null byte");
    finding::<(), _>(Err(child::execute(-1, &path)))
}

/// Makes a file that could be a program, and executes it.
fn program(path: &str) -> String {
    let made = std::fs::write(path, "no program")
        .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o700)));
    match made {
        Ok(()) => execute(path),
        Err(error) => format!("not made: {error}"),
    }
}

/// Gives a new file this mode: `mode path`.
fn chmod(parameters: &str) -> String {
    let (mode, path) = parameters.split_once(' ').expect("a mode and a path");
    let mode = u32::from_str_radix(mode, 8).expect("an octal number");
    let made = File::create(path);
    finding(made.and_then(|_| std::fs::set_permissions(path, Permissions::from_mode(mode))))
}

/// Writes to a file until that is refused; at most 64 MiB.
fn fill(path: &str) -> String {
    let filled = || -> io::Result<()> {
        let mut file = File::create(path)?;
        (0..1024).try_for_each(|_| file.write_all(&[0; 1 << 16]))
    };
    finding(filled())
}

/// Makes files in a directory until that is refused; at most 10000.
fn crowd(path: &str) -> String {
    finding((0..10_000).try_for_each(|number| File::create(format!("{path}/{number}")).map(drop)))
}

/// Owner, group and mode.
fn status(path: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(path) {
        Ok(status) => format!("{} {} {:o}", status.uid(), status.gid(), status.mode() & 0o7777),
        Err(error) => finding::<(), _>(Err(error)),
    }
}

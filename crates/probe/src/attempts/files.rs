//! C: files of others, by ordinary means.
//!
//! Runs in: the probe. Never: reads what it could open, or writes to it; makes only files of its own, and removes
//! them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use crate::attempt::{
    Attempt, AttemptOutcome, Cx, any, attempt, not_applicable, reached, refused, short, succeeded, tried,
};
use crate::look::{self, Own};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('C', "read-paths", "read files of others by their paths", "root", read_paths),
    attempt('C', "write-paths", "write files of others by their paths", "root", write_paths),
    attempt('C', "read-machine", "read the machine's own files", "root", read_machine),
    attempt('C', "read-homes", "list folders of users", "root", read_homes),
    attempt('C', "write-anywhere", "make a file anywhere", "root", write_anywhere).services_may(),
    attempt('C', "write-own-program", "write its own program, by /proc/self/exe", "root", write_own_program),
    attempt('C', "write-own-program-by-name", "write its own program by its name", "root", write_by_name),
    attempt('C', "symlink", "read a file of others by a symlink", "root", by_symlink),
    attempt('C', "hardlink", "keep a file of others by a hard link", "root", by_hardlink),
    attempt('C', "magic-links", "go out by a magic link in /proc", "mount namespace", magic_links),
    attempt('C', "dev-fd", "open descriptors by /dev/fd", "mount namespace", dev_fd),
    attempt('C', "o-path", "hold a file of others without opening it (O_PATH)", "root", o_path),
    attempt('C', "chmod-setuid", "make a file setuid", "seccomp", chmod_setuid),
    attempt('C', "mknod-device", "make a device node", "capabilities", mknod_device),
    attempt('C', "mknod-fifo", "make a FIFO", "root", mknod_fifo),
    attempt('C', "chown", "give a file to somebody else", "capabilities", chown),
    attempt('C', "setuid-files", "setuid files in sight", "root", setuid_files),
    attempt('C', "device-files", "device nodes in sight, other than the harmless ones", "root", device_files),
    attempt('C', "watch", "watch what others do with files (fanotify)", "capabilities", watch),
];

fn read_paths(cx: &Cx<'_>) -> AttemptOutcome {
    any(cx.hints.paths.iter(), |path| match fs::metadata(path) {
        Ok(found) if found.is_dir() => tried(fs::read_dir(path)),
        _ => tried(look::open(path, false)),
    })
}

fn write_paths(cx: &Cx<'_>) -> AttemptOutcome {
    any(cx.hints.write_paths.iter(), |path| match look::open(path, true) {
        // A running program cannot be written to; who is told so could, once it has ended.
        Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
            succeeded("once it does not run")
        }
        result => tried(result),
    })
}

fn read_machine(_: &Cx<'_>) -> AttemptOutcome {
    any(["/etc/passwd", "/etc/hostname", "/usr/bin/env", "/var/lib/dpkg/status"], |path| {
        tried(look::open(path, false))
    })
}

fn read_homes(_: &Cx<'_>) -> AttemptOutcome {
    any(["/home", "/root", "/var/lib", "/run/user"], |path| tried(fs::read_dir(path)))
}

fn write_anywhere(_: &Cx<'_>) -> AttemptOutcome {
    let name = format!("bulkhead-probe-file-{}", std::process::id());
    let paths = look::folders().into_iter().map(|folder| folder.join(&name));
    any(paths.map(|path| path.display().to_string()), |path| {
        let made = fs::OpenOptions::new().write(true).create_new(true).open(path);
        if made.is_ok() {
            let _ = fs::remove_file(path);
        }
        tried(made)
    })
}

fn write_own_program(_: &Cx<'_>) -> AttemptOutcome {
    let opened = look::open("/proc/self/exe", true);
    match opened {
        Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
            succeeded("allowed: refused only while it runs")
        }
        result => tried(result),
    }
}

fn write_by_name(_: &Cx<'_>) -> AttemptOutcome {
    let paths = std::env::current_exe().ok().into_iter().chain(std::env::args_os().next().map(PathBuf::from));
    any(paths.map(|path| path.display().to_string()), |path| match look::open(path, true) {
        Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
            succeeded("allowed: refused only while it runs")
        }
        result => tried(result),
    })
}

/// The files of others: those of the hints, or those of every machine.
fn others(cx: &Cx<'_>) -> Vec<String> {
    if cx.hints.paths.is_empty() { vec!["/etc/passwd".into()] } else { cx.hints.paths.clone() }
}

fn by_symlink(cx: &Cx<'_>) -> AttemptOutcome {
    let own = match Own::new() {
        Ok(own) => own,
        Err(error) => return tried::<(), _>(Err(error)).or_detail("no folder to make one in"),
    };
    any(others(cx), |path| {
        let link = own.0.join("link");
        let _ = fs::remove_file(&link);
        let made = symlink(path, &link);
        tried(made.and_then(|()| look::open(&link, false)))
    })
}

fn by_hardlink(cx: &Cx<'_>) -> AttemptOutcome {
    // A hard link needs the same file system; a program or the like of the hints may lie on another one.
    any(others(cx), |path| {
        let beside = PathBuf::from(path).parent().map(|folder| folder.join(".bulkhead-probe-link"));
        let own = Own::new().ok();
        let places = own.iter().map(|own| own.0.join("hardlink")).chain(beside);
        any(places.map(|place| place.display().to_string()), |place| {
            let made = fs::hard_link(path, place);
            if made.is_ok() {
                let _ = fs::remove_file(place);
            }
            tried(made)
        })
    })
}

fn magic_links(cx: &Cx<'_>) -> AttemptOutcome {
    let inside = look::identity("/");
    let pids = super::processes::targets(cx);
    let links = pids.iter().flat_map(|pid| ["root", "cwd", "exe"].map(|name| format!("/proc/{pid}/{name}")));
    any(links.chain(["/proc/self/root/proc/1/root".into()]), |link| match fs::metadata(link) {
        Ok(found)
            if found.is_dir()
                && Some((found.dev(), found.ino())) == inside
                && cx.aside
                && !cx.hints.pids.is_empty() =>
        {
            succeeded("the same root")
        }
        result => tried(result),
    })
}

fn dev_fd(_: &Cx<'_>) -> AttemptOutcome {
    any(["/dev/fd", "/proc/self/fd", "/dev/stdin"], |path| tried(fs::symlink_metadata(path)))
}

fn o_path(cx: &Cx<'_>) -> AttemptOutcome {
    any(others(cx), |path| {
        tried(rustix::fs::openat(CWD, path.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))
    })
}

/// Does something with a file of its own; refused if it cannot have one.
fn with_own_file(act: impl FnOnce(&PathBuf) -> AttemptOutcome) -> AttemptOutcome {
    let made = Own::new().and_then(|own| Ok((own.file("file")?.0, own)));
    match made {
        Ok((path, _own)) => act(&path),
        Err(error) => tried::<(), _>(Err(error)).or_detail("no file can be made"),
    }
}

fn chmod_setuid(_: &Cx<'_>) -> AttemptOutcome {
    with_own_file(|path| {
        let made = fs::set_permissions(path, fs::Permissions::from_mode(0o4700));
        tried(made).or_detail("on a file of its own")
    })
}

fn mknod_device(_: &Cx<'_>) -> AttemptOutcome {
    // The device of /dev/null.
    mknod(FileType::CharacterDevice, rustix::fs::makedev(1, 3))
}

fn mknod_fifo(_: &Cx<'_>) -> AttemptOutcome {
    mknod(FileType::Fifo, 0)
}

fn mknod(kind: FileType, device: u64) -> AttemptOutcome {
    let folder = Own::new();
    let path =
        folder.as_ref().map_or_else(|_| PathBuf::from("/bulkhead-probe-node"), |own| own.0.join("node"));
    let made = rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), device);
    if made.is_ok() {
        let _ = fs::remove_file(&path);
    }
    tried(made)
}

fn chown(_: &Cx<'_>) -> AttemptOutcome {
    with_own_file(|path| {
        let nobody = rustix::fs::Uid::from_raw(65_534);
        tried(rustix::fs::chownat(CWD, path, Some(nobody), None, AtFlags::empty()))
    })
}

fn setuid_files(_: &Cx<'_>) -> AttemptOutcome {
    let mut found = Vec::new();
    look::walk(|path, metadata| {
        if metadata.is_file() && metadata.mode() & 0o6000 != 0 {
            found.push(path.display().to_string());
        }
    });
    if found.is_empty() { refused("none") } else { succeeded(format!("{}: {}", found.len(), short(&found))) }
}

fn device_files(_: &Cx<'_>) -> AttemptOutcome {
    use std::os::unix::fs::FileTypeExt;
    const HARMLESS: [&str; 6] =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
    let mut found = Vec::new();
    look::walk(|path, metadata| {
        let kind = metadata.file_type();
        let device = kind.is_char_device() || kind.is_block_device();
        if device && !HARMLESS.iter().any(|known| path.as_os_str() == *known) {
            found.push(path.display().to_string());
        }
    });
    if found.is_empty() { refused("none") } else { succeeded(format!("{}: {}", found.len(), short(&found))) }
}

fn watch(_: &Cx<'_>) -> AttemptOutcome {
    use sys::attempt::{Arg, calls};
    let opened = calls::FANOTIFY_INIT.make(&mut [Arg::Int(0), Arg::Int(0)]);
    match opened {
        Err(sys::attempt::Errno::NOSYS) => not_applicable("the kernel has no fanotify"),
        result => reached(result),
    }
}

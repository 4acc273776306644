//! C: ways out of the root directory.
//!
//! Runs in: the probe. Never: goes out in its own process where there can be a child to go.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use sys::attempt::{Arg, calls};

use crate::attempt::{Attempt, AttemptOutcome, Cx, any, attempt, denied, refused, succeeded, tried};
use crate::look::{self, Own};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('C', "dotdot-root", "leave the root by `..`", "root", dotdot_root)
        .refused_anyway("where there is nothing above the root: outside of a jail"),
    attempt('C', "dotdot-cwd", "leave the working directory by `..`", "root", dotdot_cwd),
    attempt(
        'C',
        "dotdot-descriptors",
        "leave a directory that it holds by `..`",
        "descriptors",
        dotdot_descriptors,
    ),
    attempt('C', "fchdir", "go to a directory that it holds, then up", "descriptors", fchdir),
    attempt('C', "o-path-fchdir", "hold the root by O_PATH, then go up", "root", o_path_fchdir)
        .refused_anyway("where there is nothing above the root: outside of a jail"),
    attempt('C', "chroot", "leave by a second chroot", "capabilities", chroot_twice),
    attempt('C', "handle", "open a file by its handle, past all folders", "capabilities", handle),
    attempt(
        'C',
        "handle-forged",
        "open the file system's root by a made-up handle",
        "capabilities",
        handle_forged,
    ),
    attempt('C', "handle-name", "learn a file's handle", "seccomp", handle_name),
    attempt('C', "root-list", "see the machine's folders at the root", "root", root_list),
];

/// Goes up from a directory until it ends; tells what of a machine's root is there.
fn climb(from: impl AsFd) -> AttemptOutcome {
    let Ok(mut at) = openat(from, "..", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) else {
        return refused("no way up");
    };
    let same = |a: &_, b: &_| match (fstat(a), fstat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => true,
    };
    // LIMIT: no folder lies deeper.
    for _ in 0..256 {
        let Ok(up) = openat(&at, "..", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) else { break };
        if same(&up, &at) {
            break;
        }
        at = up;
    }
    match openat(&at, "etc/passwd", OFlags::PATH, Mode::empty()) {
        Ok(_) => succeeded("etc/passwd is in reach"),
        Err(errno) => denied(errno, "no etc/passwd at the top"),
    }
}

fn dotdot_root(_: &Cx<'_>) -> AttemptOutcome {
    let root = look::identity("/");
    let path = "/..".repeat(64);
    match look::identity(&path) {
        found if found == root => refused("it is the root itself"),
        None => refused("no way up"),
        Some(_) => succeeded(path),
    }
}

fn dotdot_cwd(_: &Cx<'_>) -> AttemptOutcome {
    climb(CWD)
}

fn dotdot_descriptors(_: &Cx<'_>) -> AttemptOutcome {
    let held = look::descriptors_of(FileType::Directory);
    if held.is_empty() {
        return refused("it holds none");
    }
    any(held.iter().map(|(number, _)| number), |number| {
        let held = held.iter().find(|(of, _)| of == *number);
        held.map_or_else(|| refused(""), |(_, directory)| climb(directory))
    })
}

fn fchdir(cx: &Cx<'_>) -> AttemptOutcome {
    let held = look::descriptors_of(FileType::Directory);
    let Some((_, directory)) = held.first() else { return refused("it holds none") };
    if !cx.aside {
        return dotdot_descriptors(cx);
    }
    match rustix::process::fchdir(directory) {
        Ok(()) => climb(CWD),
        Err(errno) => denied(errno, ""),
    }
}

fn o_path_fchdir(cx: &Cx<'_>) -> AttemptOutcome {
    let root = match openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
        Ok(root) => root,
        Err(errno) => return denied(errno, ""),
    };
    if cx.aside && rustix::process::fchdir(&root).is_err() {
        return refused("it cannot be gone to");
    }
    let up = openat(&root, "..", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    match (up.and_then(fstat), fstat(&root)) {
        (Ok(up), Ok(root)) if (up.st_dev, up.st_ino) == (root.st_dev, root.st_ino) => {
            refused("it is the root itself")
        }
        (Ok(_), Ok(_)) => succeeded("there is something above"),
        (Err(errno), _) | (_, Err(errno)) => denied(errno, ""),
    }
}

/// The classic: a new root below, while a directory above is still held.
fn chroot_twice(cx: &Cx<'_>) -> AttemptOutcome {
    if !cx.aside {
        // Where there is no child, the root stays what it is.
        return tried(calls::CHROOT.make(&mut [Arg::Text("/")]));
    }
    let own = match Own::new() {
        Ok(own) => own,
        Err(_) => return tried(calls::CHROOT.make(&mut [Arg::Text("/")])),
    };
    let above = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    let path = own.0.display().to_string();
    if let Err(errno) = calls::CHROOT.make(&mut [Arg::Text(&path)]) {
        return denied(errno, "");
    }
    let outcome = match above {
        Ok(above) => climb(&above).or_detail("out again"),
        Err(errno) => denied(errno, "nothing to hold on to"),
    };
    // Out again, so that what was made can be removed.
    let mut up = "..".to_owned();
    for _ in 0..8 {
        let _ = std::env::set_current_dir(&up);
        up = "..".into();
    }
    let _ = fs::remove_dir(path.trim_start_matches('/'));
    outcome
}

/// The structure of `name_to_handle_at`: the room for a handle, its kind, and the handle.
const ROOM: usize = 128;

fn handle_of(path: &str) -> Result<Vec<u8>, sys::attempt::Errno> {
    let mut handle = vec![0; 8 + ROOM];
    handle[..4].copy_from_slice(&(ROOM as u32).to_ne_bytes());
    let mut mount = [0; 8];
    calls::NAME_TO_HANDLE_AT.make(&mut [
        Arg::Int(CWD.as_raw_fd().into()),
        Arg::Text(path),
        Arg::Out(&mut handle),
        Arg::Out(&mut mount),
        Arg::Int(0),
    ])?;
    Ok(handle)
}

fn handle_name(_: &Cx<'_>) -> AttemptOutcome {
    any(["/", ".", "/tmp"], |path| tried(handle_of(path)))
}

/// Opens a handle on the file system that a directory belongs to.
fn open_handle(directory: &str, handle: &[u8]) -> AttemptOutcome {
    let directory = match look::open(directory, false) {
        Ok(directory) => directory,
        Err(error) => return tried::<(), _>(Err(error)),
    };
    let o_path = Arg::Int(OFlags::PATH.bits().into());
    let mut arguments = [Arg::Int(directory.as_raw_fd().into()), Arg::Bytes(handle), o_path];
    tried(calls::OPEN_BY_HANDLE_AT.make(&mut arguments))
}

fn handle(_: &Cx<'_>) -> AttemptOutcome {
    any(["/", "/tmp", "/proc"], |path| match handle_of(path) {
        Ok(handle) => open_handle(path, &handle),
        Err(errno) => denied(errno, "no handle"),
    })
}

/// Inode 2, generation 0: the root of an ext file system. A process that is told that it is stale was let through.
fn handle_forged(_: &Cx<'_>) -> AttemptOutcome {
    let mut handle = vec![0; 16];
    handle[..4].copy_from_slice(&8_u32.to_ne_bytes());
    handle[4..8].copy_from_slice(&1_u32.to_ne_bytes());
    handle[8..12].copy_from_slice(&2_u32.to_ne_bytes());
    let outcome = open_handle("/", &handle);
    if outcome.errno.as_deref() == Some("ESTALE") { succeeded("allowed: stale") } else { outcome }
}

fn root_list(_: &Cx<'_>) -> AttemptOutcome {
    let listed = match fs::read_dir("/") {
        Ok(listed) => listed,
        Err(error) => return tried::<(), _>(Err(error)),
    };
    let machine = ["etc", "home", "root", "var", "usr", "boot", "srv", "opt", "mnt"];
    let names = listed.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let (found, other): (Vec<String>, Vec<String>) = names.partition(|name| machine.contains(&name.as_str()));
    if found.is_empty() {
        refused(format!("only: {}", crate::attempt::short(&other)))
    } else {
        succeeded(crate::attempt::short(&found))
    }
}

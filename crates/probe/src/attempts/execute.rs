//! E: executing other programs.
//!
//! Runs in: the probe; where no child can be made, programs are files that are none, so that nothing takes the
//! place of the probe.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{Access, MemfdFlags, memfd_create};
use sys::attempt::{Errno, child};

use crate::attempt::{
    Attempt, AttemptOutcome, Cx, any, attempt, denied, not_applicable, refused, succeeded, tried,
};
use crate::look::{self, Own};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('E', "exec-machine", "execute a program of the machine", "root", machine),
    attempt('E', "exec-itself", "execute its own program again", "seccomp", itself).services_may(),
    attempt('E', "exec-memfd", "execute a file without a name", "seccomp", memfd),
    attempt('E', "exec-own-file", "execute a file of its own making", "mount namespace", own_file),
    attempt('E', "exec-setuid", "gain privileges by a setuid program", "no_new_privs", setuid),
];

/// The exit status of our small program; no error has such a number.
const STATUS: i32 = 170;

/// A program for x86-64 that does nothing but end with [`STATUS`]: a header, one segment, three instructions.
fn program() -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // Executable, x86-64, version 1.
    for half in [2_u16, 62] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1_u32.to_le_bytes());
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    // Entry, segments' table, sections' table.
    for word in [BASE + HEADERS, 64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    // Sizes and counts: this header, one segment of 56 bytes, no section.
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    // mov edi, STATUS; mov eax, 60 (exit); syscall
    let mut code = vec![0xBF];
    code.extend_from_slice(&STATUS.to_le_bytes());
    code.extend_from_slice(&[0xB8, 60, 0, 0, 0, 0x0F, 0x05]);
    // Loadable, readable and executable.
    for word in [1_u32, 5] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    let length = HEADERS + code.len() as u64;
    for word in [0, BASE, BASE, length, length, 0x1000] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&code);
    file
}

/// The content in the place of a program: a real one only where a child executes it.
fn content(cx: &Cx<'_>) -> Vec<u8> {
    if cx.aside { program() } else { b"no program".to_vec() }
}

fn execute(cx: &Cx<'_>, file: i32, path: &str) -> AttemptOutcome {
    let Ok(path) = CString::new(path) else { return refused("") };
    let result = if cx.aside { child::execute_aside(file, &path) } else { Err(child::execute(file, &path)) };
    match result {
        // A file that is no program is refused only after everything else was allowed.
        Err(Errno::NOEXEC) => succeeded("allowed: the kernel looked into the file"),
        result => tried(result),
    }
}

fn machine(cx: &Cx<'_>) -> AttemptOutcome {
    any(["/bin/true", "/usr/bin/true", "/bin/sh", "/usr/bin/env"], |path| {
        if cx.aside && path.ends_with("true") {
            return execute(cx, -1, path);
        }
        tried(rustix::fs::access(*path, Access::EXEC_OK))
    })
}

/// May it be executed? It is not, as it would do everything again.
fn itself(_: &Cx<'_>) -> AttemptOutcome {
    let own = std::env::args_os().next().map(|name| name.to_string_lossy().into_owned());
    any(["/proc/self/exe".into()].into_iter().chain(own), |path: &String| {
        tried(rustix::fs::access(path.as_str(), Access::EXEC_OK))
    })
}

fn memfd(cx: &Cx<'_>) -> AttemptOutcome {
    let made = memfd_create("probe", MemfdFlags::CLOEXEC).map_err(std::io::Error::from).map(File::from);
    let written = made.and_then(|mut file| file.write_all(&content(cx)).map(|()| file));
    match written {
        Ok(file) => execute(cx, file.as_raw_fd(), ""),
        Err(error) => tried::<(), _>(Err(error)).or_detail("no memfd"),
    }
}

fn own_file(cx: &Cx<'_>) -> AttemptOutcome {
    let own = match Own::new() {
        Ok(own) => own,
        Err(error) => return tried::<(), _>(Err(error)).or_detail("no folder for it"),
    };
    let path = own.0.join("program");
    let mut how = std::fs::OpenOptions::new();
    // The file must be closed for writing before it is executed.
    let written = how
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o700)
        .open(&path)
        .and_then(|mut file| file.write_all(&content(cx)));
    match written {
        Ok(()) => execute(cx, -1, &path.display().to_string()),
        Err(error) => tried::<(), _>(Err(error)),
    }
}

/// A setuid program that it may execute, while nothing takes the effect away. It is not executed.
fn setuid(_: &Cx<'_>) -> AttemptOutcome {
    let mut found = Vec::new();
    look::walk(|path, metadata| {
        let executable = rustix::fs::access(path, Access::EXEC_OK).is_ok();
        if metadata.is_file() && metadata.mode() & 0o6000 != 0 && executable {
            found.push(path.display().to_string());
        }
    });
    let Some(first) = found.first() else { return refused("no setuid program in sight") };
    match rustix::thread::no_new_privs() {
        Ok(true) => denied(Errno::PERM, format!("no_new_privs takes the effect from {first}")),
        Ok(false) => succeeded(first),
        Err(errno) => not_applicable(crate::attempt::denied(errno, "").detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_program_runs() {
        let hints = crate::Hints::default();
        let cx = Cx { hints: &hints, own: 0, aside: true, number: 0 };
        assert_eq!(content(&cx).len(), 120 + 12);
        let outcome = memfd(&cx);
        assert!(outcome.has_succeeded(), "{outcome:?}");
    }
}

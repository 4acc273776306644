//! Whose a control group is: a launcher holds a lock on the directory of its own, and what nobody holds was left
//! behind.
//!
//! Runs in: the launcher, as root. Sees: the kernel's own files. Never: removes a group of a launcher that lives.
//!
//! A pid does not tell: two launchers may share a hierarchy and not the pids, in containers, and a successor goes on in
//! the group of the launcher before.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// How our groups' names begin; the launcher's pid follows.
const PREFIX: &str = "bulkhead-";
/// LIMIT: names tried, and how often one is that others remove.
const ATTEMPTS_MAX: u32 = 16;

/// Held for as long as the group is in use.
#[derive(Debug)]
pub struct Claim {
    #[expect(dead_code, reason = "the lock goes with it")]
    directory: File,
}

/// Makes a group in `own` that no other launcher removes, for the launcher of this pid.
///
/// # Errors
/// Those of the kernel, where no group can be made.
pub fn claim(own: &Path, pid: u32) -> io::Result<(PathBuf, Claim)> {
    let mut number = 1;
    for _ in 0..ATTEMPTS_MAX {
        let top = own.join(match number {
            1 => format!("{PREFIX}{pid}"),
            _ => format!("{PREFIX}{pid}-{number}"),
        });
        match fs::create_dir(&top) {
            // Another launcher has this pid, in a namespace of its own.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
            // A launcher that starts may remove the group before the lock is there: then the name is tried again.
            Ok(()) => {
                if let Some(claim) = hold(&top) {
                    return Ok((top, claim));
                }
            }
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Holds a group that there is; `None` if it is being removed.
pub fn hold(top: &Path) -> Option<Claim> {
    lock(top, FlockOperation::NonBlockingLockShared)
}

/// Removes what launchers have left in `own` that were ended without a chance to. `pid` is that of this one.
pub fn remove_stale(own: &Path, pid: u32) {
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(of) = name.to_str().and_then(pid_of) else { continue };
        // One of this very number was another launcher's. A launcher of an earlier version has no lock.
        let is_gone = of == pid || matches!(fs::exists(format!("/proc/{of}")), Ok(false));
        if is_gone && let Some(_claim) = lock(&entry.path(), FlockOperation::NonBlockingLockExclusive) {
            remove(&entry.path());
        }
    }
}

/// Removes a group and those in it; a group is a directory whose files need no removing.
pub fn remove(top: &Path) {
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(top);
}

fn pid_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(PREFIX)?;
    number.split_once('-').map_or(number, |(pid, _)| pid).parse().ok()
}

/// Locks a directory, if it is still the one at its path then.
fn lock(top: &Path, operation: FlockOperation) -> Option<Claim> {
    let directory = File::open(top).ok()?;
    flock(&directory, operation).ok()?;
    let is_there = fs::metadata(top).ok()?.ino() == directory.metadata().ok()?.ino();
    is_there.then_some(Claim { directory })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has it.
    const PID: u32 = u32::MAX;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_group_is_left_behind_when_nobody_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let (top, claim) = claim(folder.path(), PID).unwrap();
        fs::create_dir(top.join("service.1")).unwrap();
        for of in ["others", "bulkhead-x", "bulkhead-"] {
            fs::create_dir(folder.path().join(of)).unwrap();
        }
        remove_stale(folder.path(), 1);
        assert!(top.join("service.1").exists(), "its launcher lives, whose pid is not seen here");
        // A successor goes on in it.
        let held = hold(&top).unwrap();
        drop(claim);
        remove_stale(folder.path(), 1);
        assert!(top.join("service.1").exists());
        drop(held);
        remove_stale(folder.path(), 1);
        assert_eq!(names(folder.path()), ["bulkhead-", "bulkhead-x", "others"]);
    }

    #[test]
    fn a_launcher_of_an_earlier_version_is_known_by_its_pid() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{PREFIX}{}", std::process::id());
        fs::create_dir(folder.path().join(&name)).unwrap();
        remove_stale(folder.path(), 1);
        assert_eq!(names(folder.path()), [name]);
        remove_stale(folder.path(), std::process::id());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn launchers_of_one_pid_have_groups_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (first, _one) = claim(folder.path(), PID).unwrap();
        let (second, _other) = claim(folder.path(), PID).unwrap();
        assert_ne!(first, second);
        remove_stale(folder.path(), PID);
        assert_eq!(names(folder.path()).len(), 2);
    }

    /// Several launchers make groups, and one takes all that it sees for left behind.
    #[test]
    fn a_group_that_was_claimed_stays() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let claims = |pid| {
                for _ in 0..1_000 {
                    // The one that removes may be quicker each time.
                    if let Ok((top, claim)) = claim(folder.path(), pid) {
                        fs::create_dir(top.join("service.1")).unwrap();
                        assert!(top.join("service.1").exists());
                        remove(&top);
                        drop(claim);
                    }
                }
            };
            let launchers: Vec<_> = (0..3).map(|number| scope.spawn(move || claims(PID - number))).collect();
            while launchers.iter().any(|launcher| !launcher.is_finished()) {
                remove_stale(folder.path(), 1);
            }
        });
    }
}

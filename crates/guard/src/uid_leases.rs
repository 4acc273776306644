//! Uids for a guard's gate and filters, which no other guard of this machine has at the same time.
//!
//! Runs in: the guard, as root. Sees no untrusted bytes. Never: takes a uid that the machine's tables name, or of a
//! range that a server has, or that something has which a guard left that was killed.
//!
//! Unlike partitions, these processes own no file, so a uid can be another guard's later. A lock on a file for each
//! says which are taken; the kernel releases it with the guard.

use std::collections::HashSet;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use jail::Identity;

use supervisor::directories::{own_directory, own_file};
use supervisor::error::{Error, range_text};
use supervisor::spawn::living;
use supervisor::spawn::uid_range;
use supervisor::spawn::uids::machine_users;

/// Uids in use by this guard.
#[derive(Debug)]
pub struct Leases {
    folder: PathBuf,
    range: RangeInclusive<u32>,
    foreign: HashSet<u32>,
    /// Those of servers.
    taken: Vec<RangeInclusive<u32>>,
    held: Vec<File>,
}

impl Leases {
    /// Uids of `range`, whose locks are in `folder`.
    pub fn new(folder: &Path, range: RangeInclusive<u32>) -> Result<Self, Error> {
        own_directory(folder, 0o700)?;
        let (foreign, taken) = (machine_users()?, uid_range::taken()?);
        Ok(Self { folder: folder.into(), range, foreign, taken, held: Vec::new() })
    }

    /// One that nobody has.
    pub fn take(&mut self) -> Result<Identity, Error> {
        let is_taken =
            |uid: &u32| self.taken.iter().any(|range| range.contains(uid)) || living::is_used(*uid);
        for uid in self.range.clone().filter(|uid| !self.foreign.contains(uid) && !is_taken(uid)) {
            let path = self.folder.join(uid.to_string());
            let lock = own_file(&path, 0o600, File::options().write(true))?;
            if lock.try_lock().is_ok()
                && let Some(identity) = Identity::new(uid)
            {
                self.held.push(lock);
                return Ok(identity);
            }
        }
        let range = range_text(&self.range);
        let problem =
            format!("no uid is left in {range} for a guard's processes; give it others with --user-range");
        Err(Error::identity(&self.folder, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_that_something_has_is_left_alone() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root gives uids");
        }
        use std::os::unix::process::CommandExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mut leases = Leases::new(folder.path(), 52911..=52912).unwrap();
        let mut left = std::process::Command::new("sleep").arg("600").uid(52911).gid(52911).spawn().unwrap();
        let taken = leases.take().unwrap().id();
        left.kill().unwrap();
        left.wait().unwrap();
        assert_eq!((taken, leases.take().unwrap().id()), (52912, 52911));
    }

    #[test]
    fn two_guards_never_have_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = Leases::new(folder.path(), 52901..=52902).unwrap();
        let mut other = Leases::new(folder.path(), 52901..=52902).unwrap();
        let (first, second) = (one.take().unwrap().id(), other.take().unwrap().id());
        assert_ne!(first, second);
        assert!(other.take().unwrap_err().to_string().contains("52901-52902"));
        drop(one);
        assert_eq!(other.take().unwrap().id(), first);
    }
}

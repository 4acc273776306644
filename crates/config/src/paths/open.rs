//! Opens what a path leads to, here or with another process that has opened it.
//!
//! Runs in: as the module above. Input: the same. Must never: open by a name what the walk has looked at.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::beside;
use super::fault::PathFault;
use super::found::Found;
use super::mounts::MountId;
use super::walk::Walk;
use super::{Class, class_of};

/// Opens what a configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// Root and the owner of the configuration's folder; `None` without root, where everything is the user's.
    trusted: Option<[u32; 2]>,
}

impl Opener {
    /// For the configuration in the folder `dir`.
    ///
    /// SECURITY: whoever owns that folder can put another configuration into it, and says what runs as whom anyway; so
    /// this user is trusted as root is. Without root there is nobody to be protected from.
    pub fn of(dir: &Path) -> Self {
        let owner = || std::fs::metadata(dir).map_or(0, |found| found.uid());
        Self { trusted: rustix::process::geteuid().is_root().then(|| [0, owner()]) }
    }

    /// One that trusts root alone, and asks for the rights of others even where this process is not root's.
    #[cfg(test)]
    pub(super) fn trusting(uids: [u32; 2]) -> Self {
        Self { trusted: Some(uids) }
    }

    /// Whether this user says what the configuration says, or everything is this user's.
    pub fn trusts(&self, uid: u32) -> bool {
        self.trusted.as_ref().is_none_or(|trusted| trusted.contains(&uid))
    }

    /// Whether this process would have to wait for somebody else than the kernel to look at a path, and does not.
    pub fn would_wait(&self, class: Class, path: &Path) -> bool {
        !beside::may_wait() && self.remote_mount(class, path).is_some()
    }

    /// What the path of a key leads to, opened only to name it.
    ///
    /// # Errors
    /// It is not there, or leads through what the key does not allow.
    pub fn look(&self, class: Class, path: &Path) -> Result<Found, PathFault> {
        let beside = beside::get();
        match (self.walk(class, beside.is_none()).to(path), beside) {
            (Err(PathFault::Remote { .. }), Some(beside)) => beside.found(class, path),
            (found, _) => found,
        }
    }

    pub(super) fn walk(&self, class: Class, enters_remote: bool) -> Walk<'_> {
        let trusted = self.trusted.as_ref().map(|trusted| &trusted[..]);
        Walk { class, trusted, enters_remote }
    }

    /// The mount on which a path leaves what the kernel answers for, if it does; nobody else is asked. `None` within
    /// stands for one that has no number.
    pub fn remote_mount(&self, class: Class, path: &Path) -> Option<Option<MountId>> {
        match self.walk(class, false).to(path) {
            Err(PathFault::Remote { mount, .. }) => Some(mount),
            _ => None,
        }
    }

    /// The same by the name of the key.
    ///
    /// # Errors
    /// As [`Opener::look`].
    pub fn look_by_key(&self, key: &str, path: &Path) -> Result<Found, PathFault> {
        self.look(class_of(key), path)
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// It is none, or cannot be opened.
    pub fn folder(&self, class: Class, path: &Path) -> Result<OwnedFd, PathFault> {
        self.look(class, path)?.open_folder()
    }

    /// Opens a regular file of [`Class::Private`], to be read.
    ///
    /// # Errors
    /// It is none, belongs to nobody who may have it read, or cannot be opened.
    pub fn file(&self, path: &Path) -> Result<File, PathFault> {
        let found = self.look(Class::Private, path)?;
        found.check_owner()?;
        found.open_file()
    }
}

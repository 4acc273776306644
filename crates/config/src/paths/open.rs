//! What a path has led to, and how it is opened from there.
//!
//! Runs in: as the module above. Input: the same. Must never: open by a name what the walk has looked at.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat};

use super::beside;
use super::fault::{PathFault, PathOwner};
use super::mounts::MountId;
use super::rights::{Placed, Right};
use super::walk::{Walk, place};
use super::{Class, class_of};

/// Opens what a configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// Root and the owner of the configuration's folder; `None` without root, where everything is the user's.
    trusted: Option<[u32; 2]>,
}

/// What a path has led to.
#[derive(Debug)]
pub struct Found {
    /// It, opened as `held` says.
    pub file: OwnedFd,
    /// For what it is open.
    pub held: Held,
    /// What it is.
    pub stat: Stat,
    /// Its path without links.
    pub real: PathBuf,
    /// Who can have put it there.
    pub placed: Placed,
    /// The folder that it lies in.
    pub folder: PathOwner,
    /// Whether somebody else than the kernel answers for its file system: a server of the network, or a program.
    pub is_remote: bool,
}

/// For what something is open that a path has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Only to name it.
    Named,
    /// A folder, to be read.
    Folder,
    /// It is the contents of a file, in memory.
    Contents,
}

impl Opener {
    /// For the configuration in the folder `dir`.
    ///
    /// SECURITY: whoever owns that folder can put another configuration into it, and says what runs as whom anyway; so this user is
    /// trusted as root is. Without root there is nobody to be protected from.
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

    /// The mount on which a path leaves what the kernel answers for, if it does; nobody else is asked. `None` within stands for
    /// one that has no number.
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

impl Found {
    /// The same, once more.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn again(&self) -> std::io::Result<Self> {
        let Self { held, stat, ref real, placed, ref folder, is_remote, .. } = *self;
        let (file, real, folder) = (self.file.try_clone()?, real.clone(), folder.clone());
        Ok(Self { file, held, stat, real, placed, folder, is_remote })
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    /// Whether it is in a folder whose names only root can change.
    pub fn is_placed_by_root(&self) -> bool {
        self.placed == Placed::Root
    }

    /// Whether the owner of the folder owns it.
    pub fn is_the_folders_owners(&self) -> bool {
        self.stat.st_uid == self.folder.uid
    }

    /// Whether a file may be read for whoever has put it there.
    ///
    /// SECURITY: in a folder of a tenant's, a hard link is any file of the machine, also one that has lost its other names.
    ///
    /// # Errors
    /// It may not.
    pub fn check_owner(&self) -> Result<(), PathFault> {
        match self.placed.may(&self.stat, Right::Read) {
            true => Ok(()),
            false => {
                Err(PathFault::Foreign { file: place(&self.real, &self.stat), folder: self.folder.clone() })
            }
        }
    }

    /// Whether it is a regular file that may be read for whoever has put it there.
    pub fn is_readable_file(&self) -> bool {
        self.is_file() && self.check_owner().is_ok()
    }

    /// Opens a folder to be read, or to be a process's root.
    ///
    /// # Errors
    /// It is none, or cannot be opened.
    pub fn open_folder(&self) -> Result<OwnedFd, PathFault> {
        if self.held == Held::Folder {
            return self.file.try_clone().map_err(|source| PathFault::Io { at: self.real.clone(), source });
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let opened = rustix::fs::openat(&self.file, ".", flags, rustix::fs::Mode::empty());
        opened.map_err(|error| PathFault::io(&self.real, error))
    }

    /// Opens a regular file to be read; another kind might keep this process waiting.
    ///
    /// # Errors
    /// It is none, or cannot be opened.
    pub fn open_file(&self) -> Result<File, PathFault> {
        if !self.is_file() {
            return Err(PathFault::WrongKind { at: self.real.clone(), wanted: "a file" });
        }
        if self.held == Held::Contents {
            let read = sys::memfd::to_be_read(&self.file).map(File::from);
            return read.map_err(|source| PathFault::Io { at: self.real.clone(), source });
        }
        let flags = OFlags::NONBLOCK.bits() as i32;
        // The same inode again, whatever the name may lead to by now.
        let again = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let opened = File::options().read(true).custom_flags(flags).open(again);
        opened.map_err(|source| PathFault::Io { at: self.real.clone(), source })
    }
}

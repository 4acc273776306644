//! What a path has led to.
//!
//! Runs in: as the module above. Input: the same. Must never: open by a name what the walk has looked at.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use rustix::fs::{FileType, OFlags, Stat};

use super::fault::{PathFault, PathOwner};
use super::rights::{ModeRight, Placement};

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
    pub placed: Placement,
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
        self.placed == Placement::Root
    }

    /// Whether the owner of the folder owns it.
    pub fn is_the_folders_owners(&self) -> bool {
        self.stat.st_uid == self.folder.uid
    }

    /// Whether a file may be read for whoever has put it there.
    ///
    /// SECURITY: in a folder of a tenant's, a hard link is any file of the machine, also one that has lost its other
    /// names.
    ///
    /// # Errors
    /// It may not.
    pub fn check_owner(&self) -> Result<(), PathFault> {
        match self.placed.may(&self.stat, ModeRight::Read) {
            true => Ok(()),
            false => Err(PathFault::Foreign {
                file: PathOwner::of(&self.real, &self.stat),
                folder: self.folder.clone(),
            }),
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

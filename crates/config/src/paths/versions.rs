//! How many files are now, of which neighbours lie in one folder: the way there is walked once, and each file is looked
//! at from there.
//!
//! Runs in: as the module above. Input: the same. Must never: find another file, or take another way, than a walk to
//! each would.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, openat};
use sys::file_version::FileVersion;

use super::mounts::{self, MountId};
use super::{Class, Found, Opener, PathFault};

/// Looks at files of [`Class::Private`], one after the other.
#[derive(Debug)]
pub struct Versions<'o> {
    opener: &'o Opener,
    folder: Option<KernelFolder>,
}

/// A folder for which the kernel answers.
#[derive(Debug)]
struct KernelFolder {
    path: PathBuf,
    file: OwnedFd,
    mount: Option<MountId>,
}

impl Opener {
    /// For a look at many files.
    pub fn versions(&self) -> Versions<'_> {
        Versions { opener: self, folder: None }
    }
}

impl Versions<'_> {
    /// As a file is now, without opening it.
    ///
    /// # Errors
    /// As [`Opener::look`].
    pub fn of(&mut self, path: &Path) -> Result<FileVersion, PathFault> {
        match self.of_neighbour(path) {
            Some(version) => Ok(version),
            None => Ok(FileVersion::from(&self.opener.look(Class::Private, path)?.stat)),
        }
    }

    /// The same of a file that is no link, and lies on the mount of its folder.
    ///
    /// To whom the folders on the way belong is no matter of the file then: a link that somebody else could have made
    /// is refused as soon as a walk comes to it.
    fn of_neighbour(&mut self, path: &Path) -> Option<FileVersion> {
        let (parent, name) = (path.parent()?, path.file_name()?);
        if self.folder.as_ref().is_none_or(|folder| folder.path.as_os_str() != parent.as_os_str()) {
            self.folder = self.enter(parent);
        }
        let KernelFolder { file, mount, .. } = self.folder.as_ref()?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(file.as_fd(), name, flags, Mode::empty()).ok()?;
        // SECURITY: on another mount somebody else may answer; the walk looks at that.
        if mounts::mount(&found) != *mount {
            return None;
        }
        let stat = rustix::fs::fstat(&found).ok()?;
        (FileType::from_raw_mode(stat.st_mode) != FileType::Symlink).then(|| FileVersion::from(&stat))
    }

    fn enter(&self, path: &Path) -> Option<KernelFolder> {
        let found = self.opener.walk(Class::Private, false).to(path).ok().filter(Found::is_folder)?;
        let mount = mounts::mount(&found.file);
        Some(KernelFolder { path: path.to_owned(), file: found.file, mount })
    }
}

//! Core files of services that may write them: readable by nobody but root once they are there (row A6).
//!
//! Runs in: the launcher, as root. Sees: the names of files that a service made; never their content. Never: opens
//! or follows what a service made, and touches its directory only when no process of the service is left.
//!
//! Source: seed 000, 4.1: the run directory of a service is the only one that it can write; after an unclean exit
//! the launcher takes the core file over.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jail::Identity;
use rustix::fs::{AtFlags, Mode};

use crate::error::{Error, at};
use crate::places;

/// Where a service finds its directory; it starts there, as that is where the kernel writes a core file.
pub const AT: &str = "/cores";
/// LIMIT: what is kept of one service; a crash loop does not fill the disk with the same core.
const KEPT_MAX: usize = 4;

/// The directories of core files, below the state directory.
#[derive(Debug)]
pub struct Cores(PathBuf);

impl Cores {
    /// Below `state`, which is the launcher's own.
    pub fn below(state: &Path) -> Self {
        Self(state.join("cores"))
    }

    /// Makes the directory into which the service called `name` may write a core file, and opens it.
    pub fn directory(&self, name: &str, identity: Identity) -> Result<OwnedFd, Error> {
        places::own_directory(&self.0, 0o700)?;
        let path = self.writable(name);
        if let Err(error) = fs::create_dir(&path)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(at("make", &path)(error));
        }
        let directory = places::directory(&path)?;
        // The directory above is root's alone, so it is the one that was made here.
        let own = rustix::fs::fchown(&directory, Some(uid(identity)), Some(gid(identity)))
            .and_then(|()| rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o700)));
        own.map_err(|error| at("give away", &path)(error.into()))?;
        Ok(directory)
    }

    /// Takes what a service left when it died; returns where it is now, if there is any.
    pub fn take(&self, name: &str) -> Result<Option<PathBuf>, Error> {
        let path = self.writable(name);
        let Ok(entries) = fs::read_dir(&path) else {
            return Ok(None);
        };
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let kept = self.next(name)?;
        fs::rename(&path, &kept).map_err(at("rename", &path))?;
        let directory = places::directory(&kept)?;
        let give = |error: rustix::io::Errno| at("take over", &kept)(error.into());
        let root = (Some(rustix::fs::Uid::ROOT), Some(rustix::fs::Gid::ROOT));
        rustix::fs::fchown(&directory, root.0, root.1).map_err(give)?;
        for name in names {
            rustix::fs::chownat(&directory, &name, root.0, root.1, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(give)?;
            // A symbolic link has no mode, and chmod would follow it.
            let stat = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(give)?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
                rustix::fs::chmodat(&directory, &name, Mode::from_raw_mode(0o400), AtFlags::empty())
                    .map_err(give)?;
            }
        }
        Ok(Some(kept))
    }

    fn writable(&self, name: &str) -> PathBuf {
        self.0.join(name.replace('/', "."))
    }

    /// A free name, for which the oldest goes if there are many.
    fn next(&self, name: &str) -> Result<PathBuf, Error> {
        let prefix = format!("{}-", name.replace('/', "."));
        let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix(&*prefix)?.parse::<u32>().ok();
        let entries = fs::read_dir(&self.0).map_err(at("read", &self.0))?;
        let mut kept: Vec<u32> = entries.flatten().filter_map(|entry| number(&entry.file_name())).collect();
        kept.sort_unstable();
        let next = kept.last().map_or(1, |last| last + 1);
        for old in kept.iter().rev().skip(KEPT_MAX - 1) {
            let path = self.0.join(format!("{prefix}{old}"));
            fs::remove_dir_all(&path).map_err(at("remove", &path))?;
        }
        Ok(self.0.join(format!("{prefix}{next}")))
    }
}

fn uid(identity: Identity) -> rustix::fs::Uid {
    rustix::fs::Uid::from_raw(identity.id())
}

fn gid(identity: Identity) -> rustix::fs::Gid {
    rustix::fs::Gid::from_raw(identity.gid())
}

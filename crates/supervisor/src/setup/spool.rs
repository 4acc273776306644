//! The files in which bodies of requests wait until they are whole, one for each worker of a site.
//!
//! Runs in: the launcher, as root. Sees: its own state folder. Never: gives a file a name that somebody else can open,
//! or a worker a way to make a second one.
//!
//! A worker writes to this file alone, and no further than `RLIMIT_FSIZE` of its jail: one that somebody else has taken
//! over fills no disk either. The file is gone when the last process that has it open is.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::directories;
use crate::error::{Error, at};

/// Its folder in the state folder.
const FOLDER: &str = "spool";

/// A new, empty file.
pub fn file(state: &Path) -> Result<OwnedFd, Error> {
    let path = state.join(FOLDER);
    directories::own_directory(&path, 0o700)?;
    let folder = directories::directory(&path)?;
    without_name(&folder).map_err(at("make a file in", &path))
}

fn without_name(folder: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(folder, ".", flags | OFlags::TMPFILE, mode) {
        // Not every file system can (overlayfs before Linux 6.3, NFS).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        made => return Ok(made?),
    }
    // SECURITY: for the moment that it has a name, only root (or the user of a rootless run) passes through the folder.
    // A launcher that was killed in that moment may have left one.
    let name = format!("{}", std::process::id());
    match unlinkat(folder, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let made = openat(folder, &name, flags | OFlags::CREATE | OFlags::NOFOLLOW, mode)?;
    unlinkat(folder, &name, AtFlags::empty())?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn it_has_no_name_and_its_folder_is_closed() {
        let state = tempfile::tempdir().unwrap();
        let (one, two) = (File::from(file(state.path()).unwrap()), File::from(file(state.path()).unwrap()));
        let (one, two) = (one.metadata().unwrap(), two.metadata().unwrap());
        assert_eq!((one.nlink(), two.nlink(), one.mode() & 0o777), (0, 0, 0o600));
        assert_ne!(one.ino(), two.ino());
        let folder = state.path().join(FOLDER);
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    }
}

//! Deletes the folder of a site that is gone, with all that its processes may have made in it.
//!
//! Runs in: the `bulkhead` command, as whoever types it: as root, in folders of a tenant. Sees: names that the tenant
//! has chosen, links, folders within folders, and what the tenant changes meanwhile if one of its processes lives on.
//! Never: follows a link, opens a path of more than one name, leaves the file system, opens a file, or goes on for
//! ever.
//!
//! SECURITY: a name is deleted in a folder that is open, and only a name: what a hard link or a symbolic link leads to
//! stays as it is. A folder that is taken away meanwhile is emptied where it is then, which is where the tenant could
//! have emptied it.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// LIMIT: how long a folder may take; some ten million files. The command can be given again.
pub const EMPTYING_MAX: Duration = Duration::from_secs(600);
/// LIMIT: names that are read at once, of at most 255 bytes.
const NAMES_MAX: usize = 4096;
/// LIMIT: folders that are open at a time. What lies deeper is moved to the top first: a tenant can make folders deeper
/// than any number of descriptors.
const DEPTH_MAX: usize = 32;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Deletes `KIND/NAME` of the state folder, if it is there.
pub fn delete(state: &Path, kind: &str, name: &str) -> io::Result<()> {
    let state = rustix::fs::open(state, FOLDER, Mode::empty())?;
    let above = match rustix::fs::openat(&state, kind, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let top = match inside(&above, name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut emptying = Emptying { top, until: Instant::now() + EMPTYING_MAX, moved: 0 };
    let top = emptying.top.try_clone()?;
    emptying.empty(&top, 0)?;
    match rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(rustix::fs::fsync(&above)?),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a folder by its name in another one, of the same file system.
fn inside<P: rustix::path::Arg>(folder: &OwnedFd, name: P) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(folder, name, FOLDER, Mode::empty(), resolve)
}

struct Emptying {
    top: OwnedFd,
    until: Instant,
    /// How many folders were moved to the top.
    moved: u64,
}

impl Emptying {
    /// Deletes everything in a folder.
    fn empty(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<()> {
        loop {
            let names = names(folder)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                self.delete(folder, &name, depth)?;
            }
        }
    }

    fn delete(&mut self, folder: &OwnedFd, name: &CString, depth: usize) -> io::Result<()> {
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        if removed(folder, name)? {
            return Ok(());
        }
        if depth >= DEPTH_MAX {
            return self.move_up(folder, name);
        }
        if !rustix::process::geteuid().is_root() {
            // Without root, whoever made the folder is this user, and may have left itself no permission. If it is
            // somebody else, the next call says so.
            let _ = rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty());
        }
        match inside(folder, name) {
            Ok(inner) => self.empty(&inner, depth + 1)?,
            // It is another one by now: the folder is looked at again.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        removed(folder, name).map(drop)
    }

    fn move_up(&mut self, folder: &OwnedFd, name: &CString) -> io::Result<()> {
        loop {
            self.moved += 1;
            let to = format!(".{}", self.moved);
            match rustix::fs::renameat_with(folder, name, &self.top, &to, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) if Instant::now() < self.until => {}
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Removes an empty folder; whether it is gone.
fn removed(folder: &OwnedFd, name: &CString) -> io::Result<bool> {
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The first names of a folder.
fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() == NAMES_MAX {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn everything_goes_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        for folder in ["state/files/shop/app/a/b", "state/files/other", "outside/kept"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in
            ["state/files/shop/app/one", "state/files/other/two", "outside/three", "outside/kept/four"]
        {
            fs::write(at(file), file).unwrap();
        }
        symlink(at("outside"), at("state/files/shop/app/link")).unwrap();
        symlink("../../other", at("state/files/shop/app/a/other")).unwrap();
        fs::hard_link(at("outside/three"), at("state/files/shop/app/hard")).unwrap();
        fs::set_permissions(at("state/files/shop/app/a"), fs::Permissions::from_mode(0o000)).unwrap();
        delete(&at("state"), "files", "shop").unwrap();
        delete(&at("state"), "files", "shop").unwrap();
        delete(&at("state"), "data", "shop").unwrap();
        assert!(!at("state/files/shop").exists());
        for file in ["state/files/other/two", "outside/three", "outside/kept/four"] {
            assert_eq!(fs::read_to_string(at(file)).unwrap(), file);
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_is_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("files")).unwrap();
        fs::create_dir_all(at("outside/kept")).unwrap();
        symlink(at("outside"), at("files/shop")).unwrap();
        assert!(delete(scratch.path(), "files", "shop").is_err());
        assert!(at("outside/kept").exists());
    }

    #[test]
    fn folders_deeper_than_descriptors_and_paths() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("files/shop/app")).unwrap();
        let mut folder =
            rustix::fs::open(scratch.path().join("files/shop/app"), FOLDER, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&folder, ".1", Mode::RWXU).unwrap();
            folder = rustix::fs::openat(&folder, "d", FOLDER, Mode::empty()).unwrap();
        }
        delete(scratch.path(), "files", "shop").unwrap();
        assert_eq!(fs::read_dir(scratch.path().join("files")).unwrap().count(), 0);
    }
}

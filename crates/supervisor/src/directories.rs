//! The launcher's directories and files: state, run, log; opened without following what others could have put there.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: opens a path that a partition can write.
//! (nginx's CVE-2016-1247 went from the log directory to root.)

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sys::absence::if_there;

use crate::error::{Error, at};

/// The directories that the launcher keeps for itself.
#[derive(Debug)]
pub struct Directories {
    /// What must outlive a restart.
    pub state: PathBuf,
    /// The administrator's door, the pid file, the empty root.
    pub run: PathBuf,
    /// Held for as long as the launcher lives: one launcher per run directory.
    lock: File,
}

impl Directories {
    /// Makes or checks the directories and takes the lock.
    pub fn open(server: &config::Server) -> Result<Self, Error> {
        for directory in [&server.state_dir, &server.run_dir, &server.log_dir] {
            own_directory(directory, 0o755)?;
        }
        let run = server.run_dir.clone();
        let path = run.join("bulkheadd.pid");
        let lock = own_file(&path, 0o644, File::options().write(true))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Running { path }),
            Err(TryLockError::Error(error)) => return Err(at("lock", &path)(error)),
        }
        fs::write(&path, format!("{}\n", std::process::id())).map_err(at("write", &path))?;
        Ok(Self { state: server.state_dir.clone(), run, lock })
    }

    /// The directories of a launcher that this one has taken the place of, and its lock.
    pub fn known(server: &config::Server, lock: OwnedFd) -> Self {
        Self { state: server.state_dir.clone(), run: server.run_dir.clone(), lock: lock.into() }
    }

    /// The file whose lock keeps other launchers away.
    pub fn lock(&self) -> &File {
        &self.lock
    }

    /// An empty directory that nobody can write, to be a process's root.
    pub fn empty_root(&self) -> Result<OwnedFd, Error> {
        let path = self.run.join("empty");
        own_directory(&path, 0o555)?;
        let mut entries = fs::read_dir(&path).map_err(at("read", &path))?;
        if entries.next().is_some() {
            return Err(Error::NotEmpty { path });
        }
        directory(&path)
    }
}

/// A log file in a folder of our own, opened for appending.
pub fn log_file(path: &Path) -> Result<File, Error> {
    own_file(path, 0o640, File::options().append(true))
}

/// A log file that the operator wants elsewhere: in a folder that only root (or the user of a rootless run) can
/// write, or somebody could put a link there.
pub fn log_elsewhere(path: &Path) -> Result<File, Error> {
    check_own(path.parent().unwrap_or(Path::new("/")))?;
    log_file(path)
}

/// Opens a directory, to be handed to a child or to be its root.
pub fn directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::RDONLY;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(at("open", path))
}

/// Opens what is at `path` only to name it.
pub fn existing(path: &Path) -> Result<OwnedFd, Error> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(at("open", path))
}

/// Makes a directory, or checks that nobody else can change what is in it.
pub fn own_directory(path: &Path, mode: u32) -> Result<(), Error> {
    match DirBuilder::new().mode(mode).create(path) {
        // The umask may have taken bits away that others need to pass through.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at("chmod", path))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(at("make", path)(error)),
    }
    check_own(path)
}

/// Whether a directory of ours is as it has to be, or could be made; it is not.
pub fn examine(path: &Path) -> Result<(), Error> {
    if if_there(path.symlink_metadata()).map_err(at("examine", path))?.is_some() {
        return check_own(path);
    }
    let above = path.parent().unwrap_or(Path::new("/"));
    let found = fs::metadata(above).map_err(at("make", path))?;
    match found.is_dir() {
        true => rustix::fs::access(above, rustix::fs::Access::WRITE_OK).map_err(io::Error::from),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
    .map_err(at("make", path))
}

/// Checks that nobody else can change what is in a directory.
fn check_own(path: &Path) -> Result<(), Error> {
    let found = fs::symlink_metadata(path).map_err(at("examine", path))?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !own || found.mode() & 0o022 != 0 {
        return Err(Error::NotOwn { path: path.into(), uid: found.uid(), mode: found.mode() & 0o7777 });
    }
    Ok(())
}

/// Opens or makes a file in a directory of our own, following no symbolic link.
pub fn own_file(path: &Path, mode: u32, how: &mut OpenOptions) -> Result<File, Error> {
    let options = how.create(true).mode(mode).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    options.open(path).map_err(at("open", path))
}

/// Puts a file with this text in the place of the one at `path`: the whole of it or nothing, even if the machine stops.
pub fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let beside = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    write().map_err(at("write", path))
}

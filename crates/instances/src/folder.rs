//! The folder with a file for each running server of a user.
//!
//! Root's is `/run/bulkhead/instances`. A user's is below `$XDG_RUNTIME_DIR`, `/run/user/UID` or `/tmp`, the first that
//! is the user's own; all of them are read, as a command may run with another environment than the server.
//!
//! SECURITY: below the base, every component is opened without following a symbolic link, and must belong to this user
//! and be writable by nobody else. So does each file. A file that fails that is named, and not read.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, mkdirat, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::entry::{BYTES_MAX, InstanceEntry};
use crate::identity::ProcessIdentity;

/// LIMIT: files of a folder that are looked at.
pub const ENTRIES_MAX: usize = 4096;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
const INSTANCES: &str = "instances";

/// Why a folder or a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// The kernel refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The action that was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else can change what is there, or has made it.
    #[error("{} is not this user's alone (uid {uid}, mode {mode:04o})", path.display())]
    NotOwn {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// A file is none of a server.
    #[error("{} is no entry of a server: {why}", path.display())]
    Malformed {
        /// The path.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no folder that could be this user's.
    #[error(
        "there is no folder for this user's servers: neither $XDG_RUNTIME_DIR nor /run/user/{uid} nor /tmp"
    )]
    Nowhere {
        /// The user.
        uid: u32,
    },
}

/// A folder that there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The folder that exists already: `/run`, `/tmp`.
    base: PathBuf,
    /// The folder of this user's servers below it, and the mode with which it is made.
    own: (String, u32),
}

impl Candidate {
    fn new(base: impl Into<PathBuf>, own: impl Into<String>, mode: u32) -> Self {
        Self { base: base.into(), own: (own.into(), mode) }
    }

    /// The path of the folder.
    pub fn path(&self) -> PathBuf {
        self.base.join(&self.own.0).join(INSTANCES)
    }

    /// Opens the folder, which is made first if `make` says so; `None` if it is not there.
    fn open(&self, make: bool) -> Result<Option<OwnedFd>, FolderFault> {
        let mut path = self.base.clone();
        // The base is the machine's or the user's, and may be a link, as /var/run is.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = match openat(CWD, &path, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(None),
            other => other.map_err(io("open", &path))?,
        };
        let stat = fstat(&folder).map_err(io("examine", &path))?;
        let is_safe = stat.st_mode & WRITABLE_BY_OTHERS == 0 || stat.st_mode & STICKY != 0;
        if !is_safe || ![0, geteuid().as_raw()].contains(&stat.st_uid) {
            return Err(not_own(&path, &stat));
        }
        for (name, mode) in [(self.own.0.as_str(), self.own.1), (INSTANCES, 0o700)] {
            path.push(name);
            if make {
                make_folder(&folder, name, mode, &path)?;
            }
            folder = match openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(None),
                other => other.map_err(io("open", &path))?,
            };
            check_own(&path, &fstat(&folder).map_err(io("examine", &path))?)?;
        }
        Ok(Some(folder))
    }
}

fn make_folder(at: &OwnedFd, name: &str, mode: u32, path: &Path) -> Result<(), FolderFault> {
    let mode = Mode::from_raw_mode(mode);
    match mkdirat(at, name, mode) {
        Err(Errno::EXIST) => return Ok(()),
        other => other.map_err(io("make", path))?,
    }
    // The umask may have taken away what others need who pass through: `/run/bulkhead` may be a run directory as well.
    let made = openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    made.and_then(|made| fchmod(made, mode)).map_err(io("chmod", path))
}

/// Where the servers of this user may be written down; the first that can be used is where they are.
pub fn candidates() -> Vec<Candidate> {
    let uid = geteuid().as_raw();
    if uid == 0 {
        return vec![Candidate::new("/run", "bulkhead", 0o755)];
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let mut found: Vec<Candidate> =
        named.into_iter().map(|base| Candidate::new(base, "bulkhead", 0o700)).collect();
    if found.iter().all(|named| named.base != usual) {
        found.push(Candidate::new(usual, "bulkhead", 0o700));
    }
    found.push(Candidate::new("/tmp", format!("bulkhead-{uid}"), 0o700));
    found
}

/// The file of this process, which is removed when this is dropped.
#[derive(Debug)]
pub struct Registration {
    folder: Rc<OwnedFd>,
    path: PathBuf,
    /// Locked for as long as the server runs: that is seen from other PID namespaces as well.
    locked: File,
    /// The content of the file.
    entry: InstanceEntry,
}

impl Registration {
    /// Writes down that this server runs. Files of servers that have died are removed.
    ///
    /// # Errors
    /// No folder can be used: the reason is that of the first one that is there.
    pub fn new(entry: InstanceEntry) -> Result<Self, FolderFault> {
        Self::among(&candidates(), entry)
    }

    fn among(candidates: &[Candidate], entry: InstanceEntry) -> Result<Self, FolderFault> {
        let mut first = None;
        for candidate in candidates {
            match candidate.open(true) {
                Ok(Some(folder)) => {
                    let (folder, path) = (Rc::new(folder), candidate.path());
                    if let Ok(listing) = FolderListing::of(&folder, &path) {
                        listing.clean();
                    }
                    let locked = write(&folder, &path, &entry)?;
                    return Ok(Self { folder, path, locked, entry });
                }
                Ok(None) => {}
                Err(fault) => first = first.or(Some(fault)),
            }
        }
        Err(first.unwrap_or(FolderFault::Nowhere { uid: geteuid().as_raw() }))
    }

    /// The content of the file.
    pub fn entry(&self) -> &InstanceEntry {
        &self.entry
    }

    /// Has the file say something else.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn update(&mut self, change: impl FnOnce(&mut InstanceEntry)) -> Result<(), FolderFault> {
        change(&mut self.entry);
        self.locked = write(&self.folder, &self.path, &self.entry)?;
        Ok(())
    }
}

/// Puts a whole file in the place of the one before, and locks it.
fn write(folder: &OwnedFd, path: &Path, entry: &InstanceEntry) -> Result<File, FolderFault> {
    let name = name_of(&entry.process);
    let beside = format!(".{name}");
    let path = path.join(&name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // One that was left by this very process, whose write did not end well.
    let _ = unlinkat(folder, &beside, AtFlags::empty());
    let file = openat(folder, &beside, flags, Mode::from_raw_mode(0o600)).map_err(io("make", &path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io("lock", &path))?;
    let mut file = File::from(file);
    let written = file.write_all(&entry.encode());
    let renamed = written.and_then(|()| Ok(renameat(folder, &beside, folder, &name)?));
    renamed.map_err(|source| FolderFault::Io { what: "write", path, source })?;
    Ok(file)
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = unlinkat(&self.folder, name_of(&self.entry.process), AtFlags::empty());
    }
}

/// A server that was written down.
#[derive(Debug)]
pub struct FoundInstance {
    /// The content of its file.
    pub entry: InstanceEntry,
    /// Whether it still runs.
    pub lives: bool,
}

/// The servers of a folder.
#[derive(Debug, Default)]
pub struct FolderListing {
    /// Those of this PID namespace, in the order of their starts.
    pub servers: Vec<FoundInstance>,
    /// Files and folders that were not believed.
    pub refused: Vec<FolderFault>,
    /// The files of servers that have died, and the folders that they are in.
    dead: Vec<(Rc<OwnedFd>, String)>,
}

/// All servers of this user that were written down, in all folders.
pub fn list() -> FolderListing {
    list_among(&candidates())
}

fn list_among(candidates: &[Candidate]) -> FolderListing {
    let mut all = FolderListing::default();
    for candidate in candidates {
        let listed = candidate.open(false).and_then(|folder| match folder {
            Some(folder) => FolderListing::of(&Rc::new(folder), &candidate.path()),
            None => Ok(FolderListing::default()),
        });
        match listed {
            Ok(listing) => {
                all.servers.extend(listing.servers);
                all.refused.extend(listing.refused);
                all.dead.extend(listing.dead);
            }
            Err(fault) => all.refused.push(fault),
        }
    }
    all.servers.sort_by_key(|found| (found.entry.process.started, found.entry.process.pid));
    all
}

impl FolderListing {
    fn of(folder: &Rc<OwnedFd>, path: &Path) -> Result<Self, FolderFault> {
        let mut listing = Self::default();
        let entries = Dir::read_from(folder.as_ref()).map_err(io("read", path))?;
        for entry in entries.take(ENTRIES_MAX) {
            let entry = entry.map_err(io("read", path))?;
            let Some((name, pid, started)) = name(entry.file_name()) else { continue };
            match read(folder, name, path) {
                Ok((entry, _)) if (entry.process.pid, entry.process.started) != (pid, started) => {
                    let why = "it is about another process than its name".to_owned();
                    listing.refused.push(FolderFault::Malformed { path: path.join(name), why });
                }
                Ok((entry, file)) => {
                    let (lives, is_from_here) = (entry.process.lives(), entry.process.is_from_here());
                    // In another PID namespace its number means another process; its lock is the same everywhere.
                    let is_unlocked = || flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
                    if !lives && (is_from_here || is_unlocked()) {
                        listing.dead.push((folder.clone(), name.to_owned()));
                    }
                    if is_from_here {
                        listing.servers.push(FoundInstance { entry, lives });
                    }
                }
                // Its server has ended meanwhile.
                Err(FolderFault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(fault) => listing.refused.push(fault),
            }
        }
        Ok(listing)
    }

    /// Removes the files of servers that have died.
    pub fn clean(&self) {
        for (folder, name) in &self.dead {
            let _ = unlinkat(folder, name, AtFlags::empty());
        }
    }
}

/// The name of a process's file: no other process ever has the same.
fn name_of(process: &ProcessIdentity) -> String {
    format!("{}-{}", process.pid, process.started)
}

/// The process that a file's name is about; `None` for names that no server gives.
fn name(bytes: &CStr) -> Option<(&str, u32, u64)> {
    let name = bytes.to_str().ok()?;
    let (pid, started) = name.split_once('-')?;
    let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
    (format!("{pid}-{started}") == name).then_some((name, pid, started))
}

fn read(folder: &OwnedFd, name: &str, path: &Path) -> Result<(InstanceEntry, File), FolderFault> {
    let path = path.join(name);
    // Not blocking: it could be a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty()).map_err(io("open", &path))?;
    let stat = fstat(&file).map_err(io("examine", &path))?;
    check_own(&path, &stat)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FolderFault::Malformed { path, why: "it is not a file".into() });
    }
    let (mut bytes, file) = (Vec::new(), File::from(file));
    let read = (&file).take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|source| FolderFault::Io { what: "read", path: path.clone(), source })?;
    match InstanceEntry::parse(&bytes) {
        Ok(entry) => Ok((entry, file)),
        Err(malformed) => Err(FolderFault::Malformed { path, why: malformed.to_string() }),
    }
}

/// Checks that this user alone can change what was opened.
fn check_own(path: &Path, stat: &Stat) -> Result<(), FolderFault> {
    let own = stat.st_uid == geteuid().as_raw() && stat.st_mode & WRITABLE_BY_OTHERS == 0;
    if own { Ok(()) } else { Err(not_own(path, stat)) }
}

fn not_own(path: &Path, stat: &Stat) -> FolderFault {
    FolderFault::NotOwn { path: path.into(), uid: stat.st_uid, mode: stat.st_mode & 0o7777 }
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> FolderFault {
    move |error| FolderFault::Io { what, path: path.into(), source: error.into() }
}

#[cfg(test)]
mod tests;

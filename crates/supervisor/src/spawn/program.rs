//! Program files: found, checked, given to one gid, and opened, so that what was checked is what runs.
//!
//! Runs in: the launcher, as root. Sees: inodes of program files, never their content beyond the first four bytes.
//! Never: changes the owner or mode of a file that more than one name or service reaches.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1 (owned by
//! root and the service's gid, mode 0410).

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jail::Identity;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::{Error, at};

/// Execute for the group, read for root: the service can run it, and neither read nor change it.
const MODE: u32 = 0o410;

/// Opens a program of a service and sets its owner and mode, or refuses.
///
/// A program outside of `directory`, the configuration's folder, is used only if it is already as it must be:
/// the mode of `/usr/bin/python3` is not ours to change.
pub fn service_program(path: &Path, directory: &Path, identity: Option<Identity>) -> Result<OwnedFd, Error> {
    let refused = |problem: String| Error::program(path, problem);
    let program = open(path)?;
    let readable = readable(&program, path)?;
    if !is_elf(&readable) {
        return Err(refused("is not an ELF executable; a service is a compiled program".into()));
    }
    let Some(identity) = identity else {
        return Ok(program);
    };
    let metadata = readable.metadata().map_err(at("examine", path))?;
    let found = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
    if found == (0, identity.gid(), MODE) {
        return Ok(program);
    }
    if !path.starts_with(directory) {
        return Err(refused(format!(
            "must belong to root and gid {0} with mode 0410, and lies outside of the configuration's folder, where \
             bulkhead changes nothing; copy it into that folder, or `chown root:{0}` and `chmod 0410` it",
            identity.gid()
        )));
    }
    if metadata.nlink() != 1 {
        return Err(refused(format!(
            "has {} hard links, and giving it to one service would change it under all of them; copy it",
            metadata.nlink()
        )));
    }
    give_to(&readable, identity).map_err(|source| {
        refused(format!("cannot be given to root and gid {} with mode 0410: {source}", identity.gid()))
    })?;
    Ok(program)
}

/// A program of which `copy` is made for a moment, to be executed and not read by others than root, as the programs of
/// services are.
///
/// The kernel keeps a process with such a program from being traced or dumped.
pub fn unreadable(program: &Path, copy: &Path) -> Result<OwnedFd, Error> {
    let mut source = File::open(program).map_err(at("open", program))?;
    // One that a launcher left which was ended at this very moment.
    let _ = std::fs::remove_file(copy);
    let mut options = File::options();
    let mut written =
        options.write(true).create_new(true).mode(0o711).open(copy).map_err(at("make", copy))?;
    std::io::copy(&mut source, &mut written).map_err(at("write", copy))?;
    // A file that somebody can still write is not executed.
    drop(written);
    let opened = open(copy);
    std::fs::remove_file(copy).map_err(at("remove", copy))?;
    opened
}

/// The content of what was opened to be executed: the same inode again, whatever the name may point to by now.
pub fn readable(program: &OwnedFd, path: &Path) -> Result<File, Error> {
    File::open(format!("/proc/self/fd/{}", program.as_raw_fd())).map_err(at("read", path))
}

fn is_elf(mut program: &File) -> bool {
    let mut start = [0; 4];
    program.read_exact(&mut start).is_ok() && start == *b"\x7fELF"
}

/// Opens a program of a filter: one in `directory` as a service's, any other as it is if it is the machine's.
///
/// An interpreter is for everybody. Nothing has to be hidden of it, and what runs in it lies in `directory`.
pub fn filter_program(path: &Path, directory: &Path, identity: Option<Identity>) -> Result<OwnedFd, Error> {
    let own = config::lexical(path).starts_with(directory);
    let real = if own { path.into() } else { path.canonicalize().map_err(at("find", path))? };
    let program = open(&real)?;
    if !is_elf(&readable(&program, path)?) {
        let problem = "is not an ELF executable; for a script, name its interpreter first, and grant it the folders \
                       of both: `{ command = [\"/usr/bin/python3\", \"filter.py\"], read = [...] }`";
        return Err(Error::program(real, problem));
    }
    if own {
        return service_program(path, directory, identity);
    }
    let stat = rustix::fs::fstat(&program).map_err(at("examine", path))?;
    if identity.is_some() && (stat.st_uid != 0 || stat.st_mode & 0o022 != 0) {
        let problem = "lies outside of the configuration's folder, so only root may own it or write to it; copy it \
                       into that folder";
        return Err(Error::program(real, problem));
    }
    Ok(program)
}

fn give_to(file: &File, identity: Identity) -> std::io::Result<()> {
    std::os::unix::fs::fchown(file, Some(0), Some(identity.gid()))?;
    // After the owner: changing the owner clears bits of the mode.
    rustix::fs::fchmod(file, Mode::from_raw_mode(MODE))?;
    Ok(())
}

/// Opens a program of ours, from the folder of the launcher's own or its libexec folder.
pub fn role_program(folder: &Path, name: &str) -> Result<OwnedFd, Error> {
    open(&folder.join(name))
}

/// Opens a program to be executed.
pub fn open(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let program = opened.map_err(at("open", path))?;
    let stat = rustix::fs::statat(&program, "", AtFlags::EMPTY_PATH);
    let stat = stat.map_err(at("examine", path))?;
    let problem = |problem: &str| Err(Error::program(path, problem));
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile if stat.st_mode & 0o6000 != 0 => {
            problem("is setuid or setgid; remove that bit")
        }
        rustix::fs::FileType::RegularFile if stat.st_mode & 0o002 != 0 => {
            problem("can be written by everybody; `chmod o-w` it")
        }
        rustix::fs::FileType::RegularFile => Ok(program),
        rustix::fs::FileType::Symlink => problem("is a symbolic link; name the file itself"),
        _ => problem("is not a regular file"),
    }
}

/// The program of this very process, to be executed by a child.
pub fn own() -> Result<OwnedFd, Error> {
    rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(crate::error::during("open this process's own program"))
}

/// Where the programs of the roles are: beside the launcher's own (a build folder), or in its libexec folder.
pub fn roles_folder() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(crate::error::during("find the launcher's own program"))?;
    let beside = own.parent().unwrap_or(Path::new("/")).to_path_buf();
    let libexec = beside.join("../libexec/bulkhead");
    for folder in [&beside, &libexec] {
        if folder.join("gate").is_file() {
            return Ok(folder.clone());
        }
    }
    let problem =
        format!("neither {} nor {} has the programs of the roles", beside.display(), libexec.display());
    Err(Error::program(beside.join("gate"), problem))
}

/// How a program is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The kernel needs nothing but the program.
    Static,
    /// The program names a dynamic loader.
    Dynamic {
        /// The loader's path, escaped and perhaps cut: to be compared with those that are known.
        loader: String,
        /// Whether the program makes its system calls itself, as those of Go do.
        is_go: bool,
    },
    /// The program is a script for this interpreter.
    Script(PathBuf),
}

/// What tells one version of a program file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64, u64, Option<SystemTime>);

/// The version of the program at `path`; `None` if it is not there.
pub fn version(path: &Path) -> Option<Version> {
    std::fs::metadata(path).ok().map(|metadata| Version::of(&metadata))
}

impl Version {
    /// The version of the file that these are about.
    pub fn of(metadata: &Metadata) -> Self {
        Self(metadata.ino(), metadata.len(), metadata.modified().ok())
    }
}

//! Program files: checked and opened, so that what was checked is what runs; those of ours, and which version a file
//! is.
//!
//! Runs in: the launcher, as root. Sees: inodes of program files, never their content beyond the first four bytes.
//! Never: changes a file of the operator's; `operator_program` does.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use config::{Class, Opener};
use rustix::fs::{AtFlags, Mode, OFlags};
use sys::file_version::FileVersion;

use crate::error::{Error, at};

/// LIMIT: bytes of a program of which a copy is made, as one is of cargo's, which have two names: the launcher makes
/// it, and it is on the disk of its state. Twice what a server with all its debugging information has.
pub(super) const COPY_BYTES_MAX: u64 = 256 << 20;

/// Why a program is not started, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// What is wrong, behind the path.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl Unfit {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }

    pub(super) fn at(self, path: &Path) -> Error {
        Error::program(path, format!("{}; {}", self.problem, self.remedy))
    }
}

/// A program of which `copy` is made for a moment, to be executed and not read by others than root, as the programs of
/// services are.
///
/// The kernel keeps a process with such a program from being traced or dumped.
pub fn unreadable(program: &Path, copy: &Path) -> Result<OwnedFd, Error> {
    let mut source = File::open(program).map_err(at("open", program))?;
    nameless_copy(&mut source, copy, 0o711, |_| Ok(()))
}

/// A copy of `source` that is at `copy` for a moment, made ready by `prepare`.
fn nameless_copy(
    source: &mut File,
    copy: &Path,
    mode: u32,
    prepare: impl Fn(&File) -> std::io::Result<()>,
) -> Result<OwnedFd, Error> {
    let file = nameless_file(copy, mode)?;
    fill_copy(source, &file, prepare).map_err(at("write", copy))?;
    Ok(file)
}

/// An empty file that is at `path` for a moment, opened only to name it.
pub(super) fn nameless_file(path: &Path, mode: u32) -> Result<OwnedFd, Error> {
    // One that a launcher left which was ended at this very moment.
    let _ = std::fs::remove_file(path);
    let made =
        File::options().write(true).create_new(true).mode(mode).open(path).map_err(at("make", path))?;
    drop(made);
    let opened = open(path);
    std::fs::remove_file(path).map_err(at("remove", path))?;
    opened
}

/// Fills a file that was opened only to name it with a copy of `source`, made ready by `prepare`.
pub(super) fn fill_copy(
    source: &mut File,
    copy: &OwnedFd,
    prepare: impl Fn(&File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let again = format!("/proc/self/fd/{}", copy.as_raw_fd());
    let mut written = File::options().write(true).truncate(true).open(again)?;
    // Its beginning has been read.
    std::io::Seek::rewind(source)?;
    // A file that somebody can still write is not executed: it is closed with the end of this.
    match std::io::copy(&mut source.take(COPY_BYTES_MAX + 1), &mut written)? > COPY_BYTES_MAX {
        true => Err(std::io::Error::other(format!("it is larger than {COPY_BYTES_MAX} bytes"))),
        false => prepare(&written),
    }
}

/// The content of what was opened to be executed: the same inode again, whatever the name may point to by now.
pub fn readable(program: &OwnedFd, path: &Path) -> Result<File, Error> {
    File::open(format!("/proc/self/fd/{}", program.as_raw_fd())).map_err(at("read", path))
}

pub(super) fn is_elf(mut program: &File) -> bool {
    let mut start = [0; 4];
    program.read_exact(&mut start).is_ok() && start == *b"\x7fELF"
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
    fit(&stat).map_err(|unfit| unfit.at(path))?;
    Ok(program)
}

/// Whether a file is one that may be executed at all.
pub(super) fn fit(stat: &rustix::fs::Stat) -> Result<(), Unfit> {
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile if stat.st_mode & 0o6000 != 0 => {
            Err(Unfit::new("is setuid or setgid", "remove that bit"))
        }
        rustix::fs::FileType::RegularFile if stat.st_mode & 0o002 != 0 => {
            Err(Unfit::new("can be written by everybody", "`chmod o-w` it"))
        }
        rustix::fs::FileType::RegularFile => Ok(()),
        rustix::fs::FileType::Symlink => Err(Unfit::new("is a symbolic link", "name the file itself")),
        _ => Err(Unfit::new("is not a regular file", "name the program itself")),
    }
}

/// The program of this very process, to be executed by a child.
pub fn own() -> Result<OwnedFd, Error> {
    rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(crate::error::during("open this process's own program"))
}

/// Opens the program of a launcher, which is to take the place of this one, and says where it really is.
///
/// SECURITY: it runs with the rights of this process, so nobody but root and the user of this process may have written
/// it.
pub fn launcher_program(path: &Path) -> Result<(OwnedFd, PathBuf), Error> {
    let real = path.canonicalize().map_err(at("find", path))?;
    let file = open(&real)?;
    let found = readable(&file, &real)?;
    let metadata = found.metadata().map_err(at("examine", &real))?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if !own || metadata.mode() & 0o022 != 0 {
        let problem = format!(
            "belongs to uid {} and has mode {:04o}; what takes the place of the launcher belongs to root or to the user of \
             this server, and nobody else may write it: `chown` and `chmod go-w` it",
            metadata.uid(),
            metadata.mode() & 0o7777
        );
        return Err(Error::program(real, problem));
    }
    if !is_elf(&found) {
        return Err(Error::program(real, "is not an ELF executable; name the program `bulkheadd`"));
    }
    Ok((file, real))
}

/// Where the program of this very process is, or was before another one was put there.
pub fn own_path() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(crate::error::during("find the launcher's own program"))?;
    let name = own.to_string_lossy();
    // The kernel says so of a file that has no name any more.
    Ok(name.strip_suffix(" (deleted)").map_or_else(|| own.clone(), PathBuf::from))
}

/// Where the programs of the roles are: beside the launcher's own (a build folder), or in its libexec folder.
pub fn roles_folder() -> Result<PathBuf, Error> {
    let own = own_path()?;
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

/// What the inspector says of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// How it is to be started.
    pub start: Start,
    /// Why it could make code while it runs, if it could: what the kernel maps for it when it starts, no policy sees.
    pub loose: Option<&'static str>,
}

/// The version of the program at `path`; `None` if it is not there.
pub fn version(path: &Path) -> Option<FileVersion> {
    let found = Opener::of(Path::new("/")).look(Class::Private, path).ok()?;
    Some(FileVersion::from(&found.stat))
}

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

use config::ProgramKind;
use jail::Identity;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::{Error, at};

/// Execute for the group, read for root: the service can run it, and neither read nor change it.
const MODE: u32 = 0o410;

/// Why a program is not started, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// What is wrong, behind the path.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl Unfit {
    fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }

    fn at(self, path: &Path) -> Error {
        Error::program(path, format!("{}; {}", self.problem, self.remedy))
    }
}

/// Whether a program of a service, of a site's own worker or of a filter would be started; changes nothing.
///
/// # Errors
/// It would not be.
pub fn fitness(path: &Path, directory: &Path, kind: ProgramKind, is_root: bool) -> Result<(), Unfit> {
    let (real, own) = real(path, directory, kind)?;
    let stat = rustix::fs::stat(&real).map_err(|error| Unfit::new(error.to_string(), "correct the path"))?;
    fit(&stat)?;
    // What is for its group alone, whoever is not root cannot read: the start finds out.
    if let Ok(file) = File::open(&real)
        && !is_elf(&file)
    {
        return Err(no_program(kind).into());
    }
    let outside = is_root && !own;
    match kind {
        _ if !outside => Ok(()),
        // The gid is one of a partition's, which no file of the machine has by chance.
        ProgramKind::Own if stat.st_uid != 0 || stat.st_mode & 0o7777 != MODE => {
            Err(outside_of_folder("that of its service"))
        }
        ProgramKind::Own => Ok(()),
        _ if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 => Err(FOREIGN.into()),
        _ => Ok(()),
    }
}

fn no_program(kind: ProgramKind) -> Fixed {
    match kind {
        ProgramKind::Filter => NO_FILTER,
        ProgramKind::Own | ProgramKind::Interpreter => NO_SERVICE,
    }
}

/// A problem and its remedy that are always the same.
type Fixed = (&'static str, &'static str);

impl From<Fixed> for Unfit {
    fn from((problem, remedy): Fixed) -> Self {
        Self::new(problem, remedy)
    }
}

const NO_SERVICE: Fixed = (
    "is not an ELF executable, as the program of a service is",
    "for a script in Python, name its interpreter first, and the folders of its `libraries` (docs/guide/python.md); for others, \
     run a server of its own behind the site with `upstream` or `fastcgi` (docs/guide/proxy.md), or `bulkhead guard`",
);
const NO_FILTER: Fixed = (
    "is not an ELF executable",
    "for a script, name its interpreter first, and grant it the folders of both: `{ command = [\"/usr/bin/python3\", \
     \"filter.py\"], read = [...] }`",
);
const FOREIGN: Fixed = (
    "lies outside of the configuration's folder, so only root may own it or write to it",
    "copy it into that folder",
);

fn outside_of_folder(gid: &str) -> Unfit {
    Unfit::new(
        format!(
            "must belong to root and gid {gid} with mode 0410, and lies outside of the configuration's folder, where bulkhead \
             changes nothing"
        ),
        "copy it into that folder, or `chown root:GID` and `chmod 0410` it",
    )
}

/// The file itself, behind symbolic links, and whether it is in `directory`.
///
/// SECURITY: links were refused once, because the owner and the mode of what they lead to would be changed. That is not
/// done any more for what has another name ([`service_program`]), and a link out of the folder leads out of it: there nothing
/// is changed. What is opened is the file that was checked.
fn real(path: &Path, directory: &Path, kind: ProgramKind) -> Result<(PathBuf, bool), Unfit> {
    let lexical = config::lexical(path);
    let own = lexical.starts_with(directory);
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if !is_link && (own || kind == ProgramKind::Own) {
        return Ok((path.into(), own));
    }
    let real = path.canonicalize().map_err(|error| {
        Unfit::new(format!("is a symbolic link that leads nowhere: {error}"), "name the file itself")
    })?;
    let own = directory.canonicalize().is_ok_and(|directory| real.starts_with(directory));
    Ok((real, own))
}

/// Opens a program of a service, sets its owner and mode, or refuses.
///
/// A program outside of `directory`, the configuration's folder, is used only if it is already as it must be:
/// the mode of `/usr/bin/python3` is not ours to change. Of a program with several names, such as those that cargo makes, a
/// copy is executed that is in `copies` for a moment.
///
/// SECURITY: to give a file with several names to a service would change it under all of them, of which one may be somebody
/// else's: who can make a hard link in the folder would have root change the mode and the group of another's program. A
/// copy changes nothing. What was given to another service is not copied either: it is that one's alone to execute.
pub fn service_program(
    path: &Path,
    directory: &Path,
    copies: &Path,
    identity: Option<Identity>,
) -> Result<OwnedFd, Error> {
    let (path, own) = &real(path, directory, ProgramKind::Own).map_err(|unfit| unfit.at(path))?;
    let program = open(path)?;
    let readable = readable(&program, path)?;
    if !is_elf(&readable) {
        return Err(Unfit::from(NO_SERVICE).at(path));
    }
    let Some(identity) = identity else {
        return Ok(program);
    };
    let metadata = readable.metadata().map_err(at("examine", path))?;
    let found = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
    if found == (0, identity.gid(), MODE) {
        return Ok(program);
    }
    if !own {
        return Err(outside_of_folder(&identity.gid().to_string()).at(path));
    }
    if metadata.nlink() != 1 {
        if found.0 == 0 && found.2 == MODE {
            let unfit = Unfit::new(
                "has several hard links and is another service's",
                "copy the program it was made from",
            );
            return Err(unfit.at(path));
        }
        return copy_for(identity, readable, &copies.join(format!("program-{}", identity.id())));
    }
    give_to(&readable, identity).map_err(|source| {
        Error::program(
            path,
            format!("cannot be given to root and gid {} with mode 0410: {source}", identity.gid()),
        )
    })?;
    Ok(program)
}

/// A copy of `source` that is `identity`'s to execute, and that has no name.
fn copy_for(identity: Identity, mut source: File, copy: &Path) -> Result<OwnedFd, Error> {
    let given = |written: &File| give_to(written, identity);
    nameless_copy(&mut source, copy, 0o600, given)
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
    // One that a launcher left which was ended at this very moment.
    let _ = std::fs::remove_file(copy);
    let mut options = File::options();
    let mut written = options.write(true).create_new(true).mode(mode).open(copy).map_err(at("make", copy))?;
    // Its beginning has been read.
    let copied = std::io::Seek::rewind(source).and_then(|()| std::io::copy(source, &mut written));
    let filled = copied.and_then(|_| prepare(&written));
    // A file that somebody can still write is not executed.
    drop(written);
    let opened = filled.map_err(at("write", copy)).and_then(|()| open(copy));
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

/// Opens a program of this kind: one in `directory` as a service's, any other as it is if it is the machine's and may be.
///
/// An interpreter is for everybody. Nothing has to be hidden of it, and what runs in it lies elsewhere.
pub fn program_of(
    kind: ProgramKind,
    path: &Path,
    directory: &Path,
    copies: &Path,
    identity: Option<Identity>,
) -> Result<OwnedFd, Error> {
    if kind == ProgramKind::Own {
        return service_program(path, directory, copies, identity);
    }
    let (real, own) = real(path, directory, kind).map_err(|unfit| unfit.at(path))?;
    let program = open(&real)?;
    if !is_elf(&readable(&program, &real)?) {
        return Err(Unfit::from(no_program(kind)).at(&real));
    }
    if own {
        return service_program(&real, directory, copies, identity);
    }
    let stat = rustix::fs::fstat(&program).map_err(at("examine", path))?;
    if identity.is_some() && (stat.st_uid != 0 || stat.st_mode & 0o022 != 0) {
        return Err(Unfit::from(FOREIGN).at(&real));
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
    fit(&stat).map_err(|unfit| unfit.at(path))?;
    Ok(program)
}

/// Whether a file is one that may be executed at all.
fn fit(stat: &rustix::fs::Stat) -> Result<(), Unfit> {
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
/// SECURITY: it runs with the rights of this process, so nobody but root and the user of this process may have written it.
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

//! The walk from `/` to what a path names, one name after the other, with descriptors alone.
//!
//! Runs in: as the module above. Input: names and links on the way. Must never: let the kernel follow a link, or go on
//! from a name that it has not looked at.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::Class;
use super::fault::{PathFault, PathOwner};
use super::found::{Found, Held};
use super::mounts::{self, MountId};
use super::rights::{self, ModeRight, Placement};
use crate::lexical::lexical;

/// LIMIT: links on the way to one file, as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// LIMIT: names that are still to come; links could make it longer without end.
const NAMES_MAX: usize = 4096;

/// A walk.
pub(super) struct Walk<'w> {
    pub(super) class: Class,
    /// Root and the owner of the configuration; `None` without root, where everything is the user's.
    pub(super) trusted: Option<&'w [u32]>,
    /// Whether the walk goes on where somebody else than the kernel answers, for however long that takes.
    pub(super) enters_remote: bool,
}

/// The mount that a file lies on, and whether somebody else than the kernel answers for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileMount {
    id: Option<MountId>,
    is_remote: bool,
}

/// A folder to which no link leads.
#[derive(Debug)]
pub(super) struct PlainFolder {
    path: PathBuf,
    file: OwnedFd,
    stat: Stat,
    /// The mount of the root from which the folder was found.
    root: FileMount,
}

impl PlainFolder {
    /// Whether it was found by this name.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        // Equal paths may be written differently, and the kernel walks them as they are written.
        self.path.as_os_str() == path.as_os_str()
    }
}

/// A link that its maker could have led anywhere, and the users who can have made it.
struct Doubtful {
    link: PathBuf,
    uid: Option<u32>,
}

/// Where a walk is.
struct At {
    path: PathBuf,
    folder: OwnedFd,
    stat: Stat,
    mounted: FileMount,
}

impl At {
    /// What this process's own root lies on has answered to it before.
    fn root() -> Result<Self, PathFault> {
        let path = PathBuf::from("/");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            rustix::fs::open("/", flags, Mode::empty()).map_err(|error| PathFault::io(&path, error))?;
        let stat = stat(&folder, &path)?;
        let mounted = FileMount { id: mounts::mount(&folder), is_remote: false };
        Ok(Self { path, folder, stat, mounted })
    }

    fn place(&self) -> PathOwner {
        PathOwner::of(&self.path, &self.stat)
    }
}

fn stat(file: &OwnedFd, path: &Path) -> Result<Stat, PathFault> {
    rustix::fs::fstat(file).map_err(|error| PathFault::io(path, error))
}

impl Walk<'_> {
    /// What a path leads to, opened only to name it.
    pub(super) fn to(&self, path: &Path) -> Result<Found, PathFault> {
        match self.without_links(path) {
            Some(found) => Ok(found),
            None => self.step_by_step(path),
        }
    }

    /// The usual case, in which there is no link on the way: the kernel finds the folder and refuses any link.
    fn without_links(&self, path: &Path) -> Option<Found> {
        self.in_folder(&self.plain_folder(path)?, path)
    }

    /// The folder in which a path ends, if no link leads there.
    pub(super) fn plain_folder(&self, path: &Path) -> Option<PlainFolder> {
        if self.class == Class::Own {
            return None;
        }
        let path = path.parent()?;
        let root = At::root().ok()?;
        let file = self.open_plain(&root.folder, path)?;
        let stat = stat(&file, path).ok()?;
        Some(PlainFolder { path: path.to_owned(), file, stat, root: root.mounted })
    }

    /// The file of a path that ends in this folder, unless the file is a link.
    pub(super) fn in_folder(&self, folder: &PlainFolder, path: &Path) -> Option<Found> {
        let file = self.open_plain(&folder.file, Path::new(path.file_name()?))?;
        let of_file = stat(&file, path).ok()?;
        if FileType::from_raw_mode(of_file.st_mode) == FileType::Symlink {
            return None;
        }
        let real = lexical(path);
        let mounted = self.mounted(folder.root, &file, path).ok()?;
        Some(self.found((file, mounted), of_file, real, (&folder.path, &folder.stat)))
    }

    fn open_plain(&self, at: &OwnedFd, path: &Path) -> Option<OwnedFd> {
        let mut resolve = ResolveFlags::NO_SYMLINKS;
        // SECURITY: on another mount somebody else may answer; each step there is looked at.
        resolve.set(ResolveFlags::NO_XDEV, self.is_wary());
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat2(at, path, flags, Mode::empty(), resolve).ok()
    }

    /// Whether it matters who answers for a file: the server's own lies where root has put it, and without root nobody
    /// else waits.
    fn looks_at_mounts(&self) -> bool {
        self.trusted.is_some() && self.class != Class::Own
    }

    /// Whether the walk asks nobody but the kernel.
    fn is_wary(&self) -> bool {
        self.looks_at_mounts() && !self.enters_remote
    }

    /// What a file lies on that was reached from `before`.
    fn mounted(&self, before: FileMount, file: &OwnedFd, here: &Path) -> Result<FileMount, PathFault> {
        if !self.looks_at_mounts() {
            return Ok(FileMount::default());
        }
        let id = mounts::mount(file);
        if id.is_some() && id == before.id {
            return Ok(before);
        }
        let is_remote = !id.is_some_and(mounts::is_local);
        match is_remote && self.is_wary() {
            true => Err(PathFault::Remote { at: here.to_owned(), mount: id }),
            false => Ok(FileMount { id, is_remote }),
        }
    }

    fn found(
        &self,
        (file, mounted): (OwnedFd, FileMount),
        stat: Stat,
        real: PathBuf,
        folder: (&Path, &Stat),
    ) -> Found {
        let placed = self.trusted.map_or(Placement::Root, |trusted| Placement::of(trusted, folder.1, &stat));
        let (held, is_remote) = (Held::Named, mounted.is_remote);
        Found { file, held, stat, real, placed, folder: PathOwner::of(folder.0, folder.1), is_remote }
    }

    fn step_by_step(&self, path: &Path) -> Result<Found, PathFault> {
        let mut at = At::root()?;
        let mut names = names_of(path.as_os_str());
        let (mut links, mut doubtful) = (0, Vec::new());
        let mut last = None;
        while let Some(name) = names.pop() {
            self.may_search(&at, &doubtful)?;
            let here = if name == ".." { parent_of(&at.path) } else { at.path.join(&name) };
            let file = self.open(&at.folder, &name).map_err(|error| PathFault::io(&here, error))?;
            let mounted = self.mounted(at.mounted, &file, &here)?;
            let of_file = stat(&file, &here)?;
            if name != ".." {
                self.allows(&at, &here, &of_file)?;
            }
            if FileType::from_raw_mode(of_file.st_mode) == FileType::Symlink {
                links += 1;
                if links > LINKS_MAX || names.len() > NAMES_MAX {
                    return Err(PathFault::io(&here, Errno::LOOP));
                }
                self.doubt(&at, &here, &of_file, &mut doubtful)?;
                let target = rustix::fs::readlinkat(&file, "", Vec::new())
                    .map_err(|error| PathFault::io(&here, error))?;
                let target = OsString::from_vec(target.into_bytes());
                if target.as_bytes().first() == Some(&b'/') {
                    at = At::root()?;
                }
                names.extend(names_of(&target));
                last = None;
                continue;
            }
            last = Some(self.found(
                (file.try_clone().map_err(|source| PathFault::Io { at: here.clone(), source })?, mounted),
                of_file,
                here.clone(),
                (&at.path, &at.stat),
            ));
            at = At { path: here, folder: file, stat: of_file, mounted };
        }
        let found = match last {
            Some(found) => found,
            // The root itself, or a link to the folder in which it lies.
            None => self.found((at.folder, at.mounted), at.stat, at.path.clone(), (&at.path, &at.stat)),
        };
        for one in &doubtful {
            let right = if found.is_folder() { ModeRight::Enter } else { ModeRight::Read };
            if !rights::may(&found.stat, one.uid, right) {
                return Err(closed(one, PathOwner::of(&found.real, &found.stat)));
            }
        }
        Ok(found)
    }

    /// Opens a name only to name it. As a folder first: what is mounted when somebody looks for it is mounted then,
    /// which may take its time.
    fn open(&self, folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let as_it_is = || rustix::fs::openat(folder, name, flags, Mode::empty());
        if self.is_wary() {
            return as_it_is();
        }
        match rustix::fs::openat(folder, name, flags | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR) => as_it_is(),
            opened => opened,
        }
    }

    /// SECURITY: the kernel asks root for no right. Who has made a link on the way could not have gone on here.
    fn may_search(&self, at: &At, doubtful: &[Doubtful]) -> Result<(), PathFault> {
        match doubtful.iter().find(|one| !rights::may(&at.stat, one.uid, ModeRight::Search)) {
            Some(one) => Err(closed(one, at.place())),
            None => Ok(()),
        }
    }

    /// Whether somebody else can change a name on the way to what is the server's own.
    fn allows(&self, at: &At, here: &Path, entry: &Stat) -> Result<(), PathFault> {
        let Some(trusted) = self.trusted.filter(|_| self.class == Class::Own) else { return Ok(()) };
        match Placement::of(trusted, &at.stat, entry) {
            Placement::Root => Ok(()),
            Placement::By(_) | Placement::Anyone => {
                Err(PathFault::NotOwn { at: here.to_owned(), folder: at.place() })
            }
        }
    }

    /// Whether a link may be followed, and as whom.
    fn doubt(
        &self,
        at: &At,
        here: &Path,
        link: &Stat,
        doubtful: &mut Vec<Doubtful>,
    ) -> Result<(), PathFault> {
        let Some(trusted) = self.trusted else { return Ok(()) };
        let placed = Placement::of(trusted, &at.stat, link);
        if placed == Placement::Root {
            return Ok(());
        }
        if self.class != Class::Published {
            return Err(PathFault::Link { at: here.to_owned(), folder: at.place(), class: self.class });
        }
        let uid = match placed {
            Placement::By(uid) => Some(uid),
            Placement::Root | Placement::Anyone => None,
        };
        doubtful.push(Doubtful { link: here.to_owned(), uid });
        // Whoever has made it may be another one of those who can write there.
        if !trusted.contains(&link.st_uid) && Some(link.st_uid) != uid {
            doubtful.push(Doubtful { link: here.to_owned(), uid: Some(link.st_uid) });
        }
        Ok(())
    }
}

fn closed(one: &Doubtful, folder: PathOwner) -> PathFault {
    PathFault::Closed { link: one.link.clone(), uid: one.uid, folder }
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

/// The names of a path, the first one last.
fn names_of(path: &OsStr) -> Vec<OsString> {
    let names = Path::new(path).components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

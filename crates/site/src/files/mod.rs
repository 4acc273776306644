//! Static files below one root directory, and in the folders that the site has beside it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the path of a request, and whatever lies below the
//! root. Must never: open anything outside of these folders, follow a symbolic link out of one but into a folder that
//! the operator has named for that, serve what is not a regular file, or hand out the source of a script, by whatever
//! name it was found.

mod beneath;
pub mod cache;
pub mod folders;
mod listing;
mod recent;
pub(crate) mod response;
pub mod root;
pub(crate) mod serve;
pub mod watch;

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use request::accept_encoding::Encoding;
use request::links::{self, LinkError, Within};
use request::path::{ESCAPED_SLASH, NormalPath, escape};
use request::{date, mime};
use sys::file_version::FileVersion;

use crate::files::beneath::{OpenedPath, READ, link, open_beneath, or_itself};
use crate::files::folders::Folders;
use crate::files::recent::Recent;
use crate::router::rules::Rules;

/// Why there is no file to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The path is malformed: 400.
    Malformed,
    /// It may not be read: 403.
    Forbidden,
    /// There is none: 404.
    NotFound,
    /// A link leads out of the site's folders: 404, as nobody shall learn what is there.
    Outside,
    /// The system has no room for it now: 503.
    Busy,
    /// It cannot be told: 500.
    Failed(Errno),
}

impl Missing {
    /// Whether it is as if there were no file.
    pub fn is_absent(self) -> bool {
        matches!(self, Missing::NotFound | Missing::Outside)
    }
}

/// The validators of a version of a file, for HTTP and the cache.
pub trait FileValidators {
    /// The strong entity tag, with its quotes: other bytes have another one, whatever their size and time.
    fn etag(&self) -> String;

    /// Whole seconds since 1970, as far as HTTP can tell them.
    fn modified(&self) -> u64;

    /// The value of `Last-Modified`; RFC 9110 8.8.2.1: never in the future.
    fn last_modified(&self) -> [u8; date::DATE_BYTES];

    /// Whether the file changed so recently that another change could bear the same time.
    fn fresh(&self) -> bool;
}

impl FileValidators for FileVersion {
    fn etag(&self) -> String {
        format!("\"{:x}-{:x}-{:x}\"", self.changed_ns as u64, self.size, self.inode)
    }

    fn modified(&self) -> u64 {
        u64::try_from(self.modified_ns / 1_000_000_000).unwrap_or(0)
    }

    fn last_modified(&self) -> [u8; date::DATE_BYTES] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        date::date(self.modified().min(now))
    }

    fn fresh(&self) -> bool {
        // LIMIT: 50 ms, several ticks of the kernel's coarse clock, which is 1 to 10 ms.
        const SETTLE: Duration = Duration::from_millis(50);
        !self.is_settled(SystemTime::now(), SETTLE)
    }
}

/// An open regular file.
#[derive(Debug)]
pub struct File {
    /// The descriptor.
    pub fd: OwnedFd,
    /// Its state when it was opened.
    pub version: FileVersion,
    /// The media type.
    pub media: &'static str,
    /// Its path below the root.
    pub path: Vec<u8>,
    /// Whether that is its only name, and has no symbolic links: who watches the folders on it hears of every change.
    pub direct: bool,
}

/// The file or folder at a path.
#[derive(Debug)]
pub enum FoundPath {
    /// A file.
    File(File),
    /// The source of a script, at this path below the root: nobody gets it as a file.
    Source(Vec<u8>),
    /// A directory whose path lacks its slash: a redirect to this path.
    Elsewhere(String),
}

/// The files below one root.
pub struct RootFiles {
    /// None of a site that has nothing but folders at paths.
    root: Option<OwnedFd>,
    names: Rc<FileNames>,
    /// The name of the root in the site's folder, where each host has one there.
    name: String,
    recent: Recent,
}

/// The operator's rules for the names of files.
#[derive(Default)]
pub struct FileNames {
    /// The names of index files: a folder's path stands for the first that exists in the folder.
    pub index: Vec<String>,
    /// Names that begin with a dot and are served all the same, beside `.well-known`.
    pub hidden: Vec<String>,
    /// Media types by suffix, before those that are known of old.
    pub media: Vec<(String, &'static str)>,
    /// The rules, which tell what is the source of a script.
    pub rules: Rc<Rules>,
    /// The folders beside the root.
    pub folders: Folders,
}

impl FileNames {
    /// The path below the root that a path stands for, empty for the root itself; nothing if it has a name that is
    /// never served.
    pub fn relative<'p>(&self, path: &'p NormalPath<'_>) -> Option<&'p [u8]> {
        let name = path.as_bytes().strip_prefix(b"/")?;
        let name = name.strip_suffix(b"/").unwrap_or(name);
        // SECURITY: no file name has a slash, so an escaped one could only mean to become a separator.
        let is_served = |segment: &[u8]| self.admits(segment) && !segment.contains(&ESCAPED_SLASH);
        name.split(|&byte| byte == b'/').all(is_served).then_some(name)
    }

    /// The media type of a file, by its name.
    fn media_of(&self, path: &[u8]) -> &'static str {
        let own = self.media.iter().find(|(suffix, _)| path.ends_with(suffix.as_bytes()));
        own.map_or_else(|| mime::by_name(path), |(_, media)| media)
    }

    fn admits(&self, name: &[u8]) -> bool {
        !name.starts_with(b".")
            || name == b".well-known"
            || self.hidden.iter().any(|hidden| hidden.as_bytes() == name)
    }
}

impl RootFiles {
    /// Serves what is below the directory `root`.
    pub fn new(root: OwnedFd, names: Rc<FileNames>) -> RootFiles {
        RootFiles { root: Some(root), ..Self::without_root(names) }
    }

    /// Serves what is in the folders at paths alone.
    pub fn without_root(names: Rc<FileNames>) -> RootFiles {
        RootFiles { root: None, names, name: String::new(), recent: Recent::default() }
    }

    /// The same for the folder `name` of a site that has one for each host.
    pub fn of_host(root: OwnedFd, names: Rc<FileNames>, name: String) -> RootFiles {
        RootFiles { name, ..RootFiles::new(root, names) }
    }

    /// The path of the root as other programs see it, where they see the site's folder as `folder`.
    pub fn seen_as<'f>(&self, folder: &'f str) -> Cow<'f, str> {
        if self.name.is_empty() { folder.into() } else { format!("{folder}/{}", self.name).into() }
    }

    /// Finds what a path leads to.
    pub fn lookup(&self, path: &NormalPath<'_>) -> Result<FoundPath, Missing> {
        let name = self.names.relative(path).ok_or(Missing::NotFound)?;
        if path.is_folder() { self.index(name) } else { self.plain(name) }
    }

    /// Whether a path leads to a file, source or not, as it does now or did within a second.
    pub fn has_file(&self, path: &NormalPath<'_>) -> Result<bool, Missing> {
        let name = self.names.relative(path).ok_or(Missing::NotFound)?;
        if self.recent.has(name) {
            return Ok(true);
        }
        let opened = self.open(name)?;
        let is_file = matches!(regular(&opened.fd)?, InodeKind::Regular(..));
        // Where a link leads may change sooner.
        if is_file && opened.is_straight {
            self.recent.note(name);
        }
        Ok(is_file)
    }

    fn plain(&self, name: &[u8]) -> Result<FoundPath, Missing> {
        let opened = self.open(name)?;
        match regular(&opened.fd)? {
            InodeKind::Regular(version, links) => Ok(self.found(opened, (version, links), name.to_vec())),
            InodeKind::Directory => Ok(FoundPath::Elsewhere(format!("/{}/", escape(name)))),
            InodeKind::Other => Err(Missing::NotFound),
        }
    }

    fn index(&self, folder: &[u8]) -> Result<FoundPath, Missing> {
        for name in &self.names.index {
            let mut path = folder.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            let opened = match self.open(&path) {
                Err(Missing::NotFound) => continue,
                other => other?,
            };
            if let InodeKind::Regular(version, links) = regular(&opened.fd)? {
                return Ok(self.found(opened, (version, links), path));
            }
        }
        Err(Missing::NotFound)
    }

    /// SECURITY: the only place where a [`File`] of the site is made.
    fn found(&self, opened: OpenedPath, (version, links): (FileVersion, u64), path: Vec<u8>) -> FoundPath {
        if self.names.rules.is_source(&path) || self.is_source_there(&opened) {
            return FoundPath::Source(path);
        }
        let direct = opened.is_straight && links == 1;
        FoundPath::File(File { fd: opened.fd, version, media: self.names.media_of(&path), path, direct })
    }

    /// Whether a link has led to the source of a script in another folder.
    fn is_source_there(&self, opened: &OpenedPath) -> bool {
        opened.linked.as_ref().is_some_and(|path| self.names.rules.is_source(path))
    }

    /// The same file in an encoding, if somebody has put one beside it that is at least as new. No encoding makes
    /// nothing of something: one that is empty is still being written, or never was.
    pub fn precompressed(&self, file: &File, encoding: Encoding) -> Option<(OwnedFd, FileVersion)> {
        let path = [&file.path[..], b".", encoding.suffix().as_bytes()].concat();
        if !self.names.rules.is_as_open(&path, &file.path) {
            return None;
        }
        let opened = self.open(&path).ok().filter(|opened| !self.is_source_there(opened))?;
        match regular(&opened.fd) {
            Ok(InodeKind::Regular(version, _)) => {
                let is_usable = version.size > 0 && version.modified_ns >= file.version.modified_ns;
                is_usable.then_some((opened.fd, version))
            }
            _ => None,
        }
    }

    /// The operator's rules for names.
    pub fn names(&self) -> &FileNames {
        &self.names
    }

    /// The path of a file as other programs see it, where they see the site's root as `root`.
    pub fn path_seen(&self, path: &[u8], root: &str) -> Vec<u8> {
        let alias = path.strip_prefix(b"/").and_then(|path| self.names.folders.alias_of(path));
        match alias {
            Some((folder, b"")) => folder.path.as_bytes().to_vec(),
            Some((folder, below)) => [folder.path.as_bytes(), b"/", below].concat(),
            None => [root.as_bytes(), path].concat(),
        }
    }

    /// The folder that has the file at a path of the site, and the file's path in it.
    fn place<'p>(&self, path: &'p [u8]) -> Option<(BorrowedFd<'_>, &'p [u8])> {
        match self.names.folders.alias_of(path) {
            Some((folder, below)) => Some((folder.fd.as_fd(), below)),
            None => Some((self.root.as_ref()?.as_fd(), path)),
        }
    }

    /// The length of the path of the outermost folder on the way to a file: nothing for the root.
    pub fn outermost(&self, path: &[u8]) -> usize {
        self.names.folders.alias_of(path).map_or(0, |(_, below)| (path.len() - below.len()).saturating_sub(1))
    }

    /// A folder at a path of the site, reached without links.
    pub fn folder(&self, path: &[u8]) -> Option<OwnedFd> {
        let (folder, below) = self.place(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(folder, or_itself(below), flags, Mode::empty(), resolve).ok()
    }

    /// Opens what is at a path of the site.
    fn open(&self, path: &[u8]) -> Result<OpenedPath, Missing> {
        let (folder, below) = self.place(path).ok_or(Missing::NotFound)?;
        match open_beneath(folder, below, READ, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => {}
            other => {
                return other.map(|fd| OpenedPath { fd, is_straight: true, linked: None }).map_err(missing);
            }
        }
        match open_beneath(folder, below, READ, ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::XDEV) if !self.names.folders.links().is_empty() => self.follow(path),
            other => other.map(|fd| OpenedPath { fd, is_straight: false, linked: None }).map_err(missing),
        }
    }

    /// Opens what a link leads to that leaves its folder.
    ///
    /// SECURITY: the walk only says which folder, and which path in it. Nothing is opened but below a folder that the
    /// operator has named, and without links, so that whoever changes links meanwhile wins nothing.
    #[cold]
    fn follow(&self, path: &[u8]) -> Result<OpenedPath, Missing> {
        let folders = &self.names.folders;
        let (start, below) = self.place(path).ok_or(Missing::NotFound)?;
        let start_path = match folders.alias_of(path) {
            Some((folder, _)) => Cow::Borrowed(&*folder.path),
            None => self.seen_as(folders.root()),
        };
        let named: Vec<&[u8]> = folders.links().iter().map(|folder| folder.path.as_bytes()).collect();
        let folder_of = |within| match within {
            Within::Start => start,
            Within::Named(number) => folders.links()[number].fd.as_fd(),
        };
        let all = links::Folders { start: start_path.as_bytes(), named: &named };
        let (within, end) = links::follow(all, below, |within, below| link(folder_of(within), below))
            .map_err(|fault| match fault {
                LinkError::Outside => Missing::Outside,
                LinkError::TooLong => Missing::NotFound,
                LinkError::Failed(errno) => missing(errno),
            })?;
        // A name that is never served is not served by another name.
        if within != Within::Start && !end.split(|&byte| byte == b'/').all(|name| self.names.admits(name)) {
            return Err(Missing::NotFound);
        }
        let fd = open_beneath(folder_of(within), &end, READ, ResolveFlags::NO_SYMLINKS).map_err(missing)?;
        Ok(OpenedPath { fd, is_straight: false, linked: Some(end) })
    }
}

enum InodeKind {
    /// With its number of names.
    Regular(FileVersion, u64),
    Directory,
    Other,
}

fn regular(fd: &OwnedFd) -> Result<InodeKind, Missing> {
    let stat = rustix::fs::fstat(fd).map_err(missing)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => InodeKind::Regular(FileVersion::from(&stat), stat.st_nlink as u64),
        FileType::Directory => InodeKind::Directory,
        _ => InodeKind::Other,
    })
}

/// The state of an open file now.
pub fn version(fd: &OwnedFd) -> Option<FileVersion> {
    match regular(fd) {
        Ok(InodeKind::Regular(version, _)) => Some(version),
        _ => None,
    }
}

fn missing(errno: Errno) -> Missing {
    match errno {
        Errno::ACCESS | Errno::PERM => Missing::Forbidden,
        // EXDEV is what openat2 says of a path that would leave the root.
        Errno::XDEV => Missing::Outside,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO => Missing::NotFound,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Missing::Busy,
        other => Missing::Failed(other),
    }
}

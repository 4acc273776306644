//! Static files below one root directory.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the path of a request, and whatever lies
//! below the root. Must never: open anything outside the root, follow a symbolic link out of it, serve
//! what is not a regular file, or hand out the source of a script, by whatever name it was found.

pub mod cache;
mod listing;
pub mod open;
pub(crate) mod response;
pub mod root;
pub(crate) mod serve;
pub mod watch;

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use request::accept_encoding::Encoding;
use request::path::{ESCAPED_SLASH, NormalPath, escape};
use request::{date, mime};

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
    /// A link leads out of the root: 404, as nobody shall learn what is there.
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

/// What identifies one state of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970 of the last change.
    pub modified_ns: i128,
    /// The inode number.
    pub inode: u64,
}

impl Meta {
    /// The strong entity tag, with its quotes.
    pub fn etag(&self) -> String {
        format!("\"{:x}-{:x}-{:x}\"", self.modified_ns as u64, self.size, self.inode)
    }

    /// Whole seconds since 1970, as far as HTTP can tell them.
    pub fn modified(&self) -> u64 {
        u64::try_from(self.modified_ns / 1_000_000_000).unwrap_or(0)
    }

    /// The value of `Last-Modified`; RFC 9110 8.8.2.1: never in the future.
    pub fn last_modified(&self) -> [u8; date::DATE_BYTES] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        date::date(self.modified().min(now))
    }

    /// Whether the file changed so recently that another change could bear the same time.
    pub fn fresh(&self) -> bool {
        // LIMIT: 50 ms, several ticks of the kernel's coarse clock, which is 1 to 10 ms.
        const SETTLE_NS: i128 = 50_000_000;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as i128 - self.modified_ns < SETTLE_NS
    }
}

/// An open regular file.
#[derive(Debug)]
pub struct File {
    /// The descriptor.
    pub fd: OwnedFd,
    /// Its state when it was opened.
    pub meta: Meta,
    /// The media type.
    pub media: &'static str,
    /// Its path below the root.
    pub path: Vec<u8>,
    /// Whether that is its only name, and has no symbolic links: who watches the folders on it hears of every change.
    pub direct: bool,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A file.
    File(File),
    /// The source of a script, at this path below the root: nobody gets it as a file.
    Source(Vec<u8>),
    /// A directory whose path lacks its slash: a redirect to this path.
    Elsewhere(String),
}

/// The files below one root.
pub struct Files {
    root: OwnedFd,
    names: Rc<Names>,
    /// The name of the root in the site's folder, where each host has one there.
    name: String,
}

/// What the operator says of the names of files.
#[derive(Default)]
pub struct Names {
    /// What a folder's path means: the first of these that exists in it.
    pub index: Vec<String>,
    /// Names that begin with a dot and are served all the same, beside `.well-known`.
    pub hidden: Vec<String>,
    /// Media types by suffix, before those that are known of old.
    pub media: Vec<(String, &'static str)>,
    /// The rules, which tell what is the source of a script.
    pub rules: Rc<Rules>,
}

impl Names {
    /// The path below the root that a path stands for, empty for the root itself; nothing if it has a name that is never
    /// served.
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

impl Files {
    /// Serves what is below the directory `root`.
    pub fn new(root: OwnedFd, names: Rc<Names>) -> Files {
        Files { root, names, name: String::new() }
    }

    /// The same for the folder `name` of a site that has one for each host.
    pub fn of_host(root: OwnedFd, names: Rc<Names>, name: String) -> Files {
        Files { name, ..Files::new(root, names) }
    }

    /// The path of the root as other programs see it, where they see the site's folder as `folder`.
    pub fn seen_as<'f>(&self, folder: &'f str) -> Cow<'f, str> {
        if self.name.is_empty() { folder.into() } else { format!("{folder}/{}", self.name).into() }
    }

    /// Finds what a path leads to.
    pub fn lookup(&self, path: &NormalPath<'_>) -> Result<Found, Missing> {
        let name = self.names.relative(path).ok_or(Missing::NotFound)?;
        if path.is_folder() { self.index(name) } else { self.plain(name) }
    }

    fn plain(&self, name: &[u8]) -> Result<Found, Missing> {
        let (fd, straight) = self.open(name)?;
        match regular(&fd)? {
            Kind::Regular(meta, links) => Ok(self.found(fd, meta, name.to_vec(), straight && links == 1)),
            Kind::Directory => Ok(Found::Elsewhere(format!("/{}/", escape(name)))),
            Kind::Other => Err(Missing::NotFound),
        }
    }

    fn index(&self, folder: &[u8]) -> Result<Found, Missing> {
        for name in &self.names.index {
            let mut path = folder.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            let (fd, straight) = match self.open(&path) {
                Err(Missing::NotFound) => continue,
                other => other?,
            };
            if let Kind::Regular(meta, links) = regular(&fd)? {
                return Ok(self.found(fd, meta, path, straight && links == 1));
            }
        }
        Err(Missing::NotFound)
    }

    /// SECURITY: the only place where a [`File`] of the site is made.
    fn found(&self, fd: OwnedFd, meta: Meta, path: Vec<u8>, direct: bool) -> Found {
        if self.names.rules.is_source(&path) {
            return Found::Source(path);
        }
        Found::File(File { fd, meta, media: self.names.media_of(&path), path, direct })
    }

    /// The same file in an encoding, if somebody has put one beside it that is at least as new. No encoding makes nothing
    /// of something: one that is empty is still being written, or never was.
    pub fn precompressed(&self, file: &File, encoding: Encoding) -> Option<(OwnedFd, Meta)> {
        let path = [&file.path[..], b".", encoding.suffix().as_bytes()].concat();
        if !self.names.rules.is_as_open(&path, &file.path) {
            return None;
        }
        let (fd, _) = self.open(&path).ok()?;
        match regular(&fd) {
            Ok(Kind::Regular(meta, _)) => {
                let is_usable = meta.size > 0 && meta.modified_ns >= file.meta.modified_ns;
                is_usable.then_some((fd, meta))
            }
            _ => None,
        }
    }

    /// What the operator says of names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// A folder at a path below the root, reached without links.
    pub fn folder(&self, path: &[u8]) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let path = if path.is_empty() { b"." } else { path };
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve).ok()
    }

    /// Opens what is there; also tells whether no link was followed.
    fn open(&self, path: &[u8]) -> Result<(OwnedFd, bool), Missing> {
        // O_NONBLOCK: a FIFO below the root must not stop the worker.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let links = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        // LIMIT: openat2 says EAGAIN when a rename ran beside it and it could not be sure; 8 times is plenty.
        for _ in 0..8 {
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::LOOP) if resolve != links => resolve = links,
                other => return other.map(|fd| (fd, resolve != links)).map_err(missing),
            }
        }
        Err(Missing::Busy)
    }
}

enum Kind {
    /// With its number of names.
    Regular(Meta, u64),
    Directory,
    Other,
}

fn regular(fd: &OwnedFd) -> Result<Kind, Missing> {
    let stat = rustix::fs::fstat(fd).map_err(missing)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let meta = Meta {
                size: u64::try_from(stat.st_size).unwrap_or(0),
                modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
                inode: stat.st_ino,
            };
            Kind::Regular(meta, stat.st_nlink as u64)
        }
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    })
}

/// The state of an open file now.
pub fn meta(fd: &OwnedFd) -> Option<Meta> {
    match regular(fd) {
        Ok(Kind::Regular(meta, _)) => Some(meta),
        _ => None,
    }
}

fn missing(errno: Errno) -> Missing {
    match errno {
        Errno::ACCESS | Errno::PERM => Missing::Forbidden,
        // EXDEV is what openat2 says of a path that would leave the root.
        Errno::XDEV => Missing::Outside,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO => Missing::NotFound,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Missing::Busy,
        other => Missing::Failed(other),
    }
}

//! Static files below one root directory.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the path of a request, and whatever lies
//! below the root. Must never: open anything outside the root, follow a symbolic link out of it, or serve
//! what is not a regular file.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::path::{self, BadPath, Relative};
use crate::settings::Encoding;
use crate::{clock, mime};

/// Why there is no file to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The path is malformed: 400.
    Malformed,
    /// It may not be read: 403.
    Forbidden,
    /// There is none: 404.
    NotFound,
    /// The system has no room for it now: 503.
    Busy,
    /// It cannot be told: 500.
    Failed(Errno),
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
    pub fn last_modified(&self) -> [u8; clock::DATE_BYTES] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        clock::date(self.modified().min(now))
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
    /// A directory whose path lacks its slash: a redirect to this path.
    Elsewhere(String),
}

/// The files below one root.
pub struct Files {
    root: OwnedFd,
    index: Vec<Vec<u8>>,
    /// The name of the root in the site's folder, where each host has one there.
    name: String,
}

impl Files {
    /// Serves what is below the directory `root`; a path that ends with `/` means the first of the names
    /// `index` that exists in that directory.
    pub fn new(root: OwnedFd, index: &[String]) -> Files {
        let index = index.iter().map(|name| name.clone().into_bytes()).collect();
        Files { root, index, name: String::new() }
    }

    /// The same for the folder `name` of a site that has one for each host.
    pub fn of_host(root: OwnedFd, index: &[String], name: String) -> Files {
        Files { name, ..Files::new(root, index) }
    }

    /// The path of the root as other programs see it, where they see the site's folder as `folder`.
    pub fn seen_as<'f>(&self, folder: &'f str) -> Cow<'f, str> {
        if self.name.is_empty() { folder.into() } else { format!("{folder}/{}", self.name).into() }
    }

    /// Finds what the path of a request, as sent, leads to; also tells whether the path is canonical.
    pub fn lookup(&self, raw: &str) -> Result<(Found, bool), Missing> {
        let relative = path::resolve(raw).map_err(|bad| match bad {
            BadPath::Malformed => Missing::Malformed,
            BadPath::Hidden => Missing::NotFound,
        })?;
        let canonical = relative.canonical;
        let found = if relative.slash { self.index(&relative)? } else { self.plain(relative)? };
        Ok((found, canonical))
    }

    fn plain(&self, mut relative: Relative) -> Result<Found, Missing> {
        let (fd, straight) = self.open(&relative.bytes)?;
        match regular(&fd)? {
            Kind::Regular(meta, links) => {
                let (media, direct) = (mime::by_name(&relative.bytes), straight && links == 1);
                Ok(Found::File(File { fd, meta, media, path: relative.bytes, direct }))
            }
            Kind::Directory => {
                relative.slash = true;
                Ok(Found::Elsewhere(path::encode(&relative)))
            }
            Kind::Other => Err(Missing::NotFound),
        }
    }

    fn index(&self, directory: &Relative) -> Result<Found, Missing> {
        for name in &self.index {
            let mut path = directory.bytes.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let (fd, straight) = match self.open(&path) {
                Err(Missing::NotFound) => continue,
                other => other?,
            };
            if let Kind::Regular(meta, links) = regular(&fd)? {
                let (media, direct) = (mime::by_name(name), straight && links == 1);
                return Ok(Found::File(File { fd, meta, media, path, direct }));
            }
        }
        Err(Missing::NotFound)
    }

    /// The file called as the operator says, for a page of an error.
    pub fn named(&self, name: &str) -> Option<File> {
        let (fd, _) = self.open(name.as_bytes()).ok()?;
        match regular(&fd) {
            Ok(Kind::Regular(meta, _)) => {
                let (media, path) = (mime::by_name(name.as_bytes()), name.as_bytes().to_vec());
                Some(File { fd, meta, media, path, direct: false })
            }
            _ => None,
        }
    }

    /// The same file in an encoding, if somebody has put one beside it that is at least as new. No encoding makes nothing
    /// of something: one that is empty is still being written, or never was.
    pub fn neighbour(&self, file: &File, encoding: Encoding) -> Option<(OwnedFd, Meta)> {
        let path = [&file.path[..], b".", encoding.suffix().as_bytes()].concat();
        let (fd, _) = self.open(&path).ok()?;
        match regular(&fd) {
            Ok(Kind::Regular(meta, _)) => {
                let is_usable = meta.size > 0 && meta.modified_ns >= file.meta.modified_ns;
                is_usable.then_some((fd, meta))
            }
            _ => None,
        }
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
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::NXIO => {
            Missing::NotFound
        }
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Missing::Busy,
        other => Missing::Failed(other),
    }
}

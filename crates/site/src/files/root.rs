//! The folders that files are served from: one, or one for each host.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the host of a request. Must never: take a host for
//! more than the name of one folder.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use sys::file_version::FileVersion;

use crate::files::{FileNames, RootFiles};

/// LIMIT: folders open at once, of 20000-odd descriptors; others are opened anew when they are asked for.
const OPEN_MAX: usize = 512;

/// LIMIT: bytes of a host, RFC 1035 2.3.4; no file system has longer names than 255.
const HOST_BYTES_MAX: usize = 253;

/// One folder, and `E`: what is kept of its files.
pub struct FileRoot<E> {
    /// Its files.
    pub files: RootFiles,
    pub(crate) entries: E,
    /// Tells it from other folders, also from one that had its name before.
    pub(crate) number: u64,
    /// Which folder it is; of one that cannot be asked, or of none, no other is the same.
    folder: Option<(u64, u64)>,
    checked: Cell<u64>,
}

impl<E: Default> FileRoot<E> {
    /// Serves what is below `root`.
    pub fn new(root: OwnedFd, names: Rc<FileNames>) -> Rc<FileRoot<E>> {
        let folder = folder_of(&root);
        Self::of(RootFiles::new(root, names), folder)
    }

    /// Serves what is in the folders at paths alone.
    pub fn without_folder(names: Rc<FileNames>) -> Rc<FileRoot<E>> {
        Self::of(RootFiles::without_root(names), None)
    }

    fn of(files: RootFiles, folder: Option<(u64, u64)>) -> Rc<FileRoot<E>> {
        thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
        let number = NEXT.with(|next| next.replace(next.get() + 1));
        Rc::new(FileRoot { files, entries: E::default(), number, folder, checked: Cell::new(0) })
    }
}

/// Where a site's files are.
pub enum Roots<E> {
    /// Nowhere.
    None,
    /// In one folder.
    One(Rc<FileRoot<E>>),
    /// In one for each host.
    Hosts(HostFolders<E>),
}

/// The folders that are open, by their hosts.
type OpenRoots<E> = HashMap<Box<[u8]>, Rc<FileRoot<E>>>;

/// A folder of folders named like hosts.
pub struct HostFolders<E> {
    folder: OwnedFd,
    names: Rc<FileNames>,
    open: RefCell<OpenRoots<E>>,
}

impl<E: Default> Roots<E> {
    /// The folders below `folder`.
    pub fn hosts(folder: OwnedFd, names: Rc<FileNames>) -> Roots<E> {
        Roots::Hosts(HostFolders { folder, names, open: RefCell::default() })
    }

    /// The folder for a host in lower case, without port and final dot.
    #[inline]
    pub fn find(&self, host: &[u8], tick: u64) -> Option<Rc<FileRoot<E>>> {
        match self {
            Roots::None => None,
            Roots::One(root) => Some(root.clone()),
            Roots::Hosts(hosts) => hosts.find(host, tick),
        }
    }
}

impl<E: Default> HostFolders<E> {
    fn find(&self, host: &[u8], tick: u64) -> Option<Rc<FileRoot<E>>> {
        let known = self.open.borrow().get(host).cloned();
        if let Some(root) = known.as_ref().filter(|root| root.checked.get() == tick) {
            return Some(root.clone());
        }
        self.look(host, known, tick)
    }

    /// Once a second it is looked whether the folder is still the same: a new one may have taken its name.
    #[cold]
    fn look(&self, host: &[u8], known: Option<Rc<FileRoot<E>>>, tick: u64) -> Option<Rc<FileRoot<E>>> {
        let Some(fd) = is_folder_name(host).then(|| self.open_folder(host)).flatten() else {
            self.open.borrow_mut().remove(host);
            return None;
        };
        let folder = Some(folder_of(&fd)?);
        let root = match known.filter(|root| root.folder == folder) {
            Some(root) => root,
            None => {
                let mut open = self.open.borrow_mut();
                if open.len() >= OPEN_MAX {
                    open.clear();
                }
                let name = String::from_utf8_lossy(host).into_owned();
                let root = FileRoot::of(RootFiles::of_host(fd, self.names.clone(), name), folder);
                open.insert(host.into(), root.clone());
                root
            }
        };
        root.checked.set(tick);
        Some(root)
    }

    fn open_folder(&self, host: &[u8]) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.folder, host, flags, Mode::empty(), resolve).ok()
    }
}

fn folder_of(opened: &OwnedFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(opened).ok().map(|stat| FileVersion::from(&stat).file())
}

/// Whether a host can be the name of a folder: never hidden, never a path.
fn is_folder_name(host: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:[]".contains(byte);
    let first = host.first().is_some_and(|first| *first != b'.');
    first
        && host.len() <= HOST_BYTES_MAX
        && host.iter().all(allowed)
        && !host.windows(2).any(|two| two == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_folders() {
        for good in ["a.test", "127.0.0.1", "[::1]", "xn--bcher-kva.example", "a_b"] {
            assert!(is_folder_name(good.as_bytes()), "{good}");
        }
        for bad in ["", ".", "..", ".a", "a/b", "../a", "a..b", "A", "a\0", "a%2fb", "é", &"a".repeat(254)] {
            assert!(!is_folder_name(bad.as_bytes()), "{bad}");
        }
    }
}

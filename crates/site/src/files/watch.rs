//! Being told of changes to files instead of asking.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what the kernel tells of folders below the root.
//! Must never: take silence for "unchanged" where it could not watch.
//!
//! inotify takes a path, and this process has none: its root is empty. So it steps into the folder, which it holds as a
//! descriptor, and watches `.`. All folders from the root to the file are watched, as each of them can be replaced.
//! An event in any of these folders makes every entry be compared with its file once: a change costs some calls of
//! `openat2`, and no bookkeeping can be wrong.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::files::root::FileRoot;

/// LIMIT: folders watched; the kernel has so many for a user altogether, at the least.
const WATCHES_MAX: usize = 4096;

/// LIMIT: names of changed files that are remembered; beyond, every file counts as changed once.
const NAMES_MAX: usize = 1024;

/// LIMIT: changes are heard of a hundred times a second, however many there are: files are compared no more often.
const PAUSE: Duration = Duration::from_millis(10);

/// Folders of one root, by their path below it.
type WatchedFolder = (u64, Box<[u8]>);

/// Whether changes to a file are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchStatus {
    /// They are not.
    No,
    /// From now on; it may have changed since it was looked at.
    Now,
    /// They were already when it was looked at.
    Before,
}

/// The folders that are watched.
#[derive(Default)]
pub struct FolderWatch {
    inotify: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    folders: RefCell<HashMap<WatchedFolder, i32>>,
    changes: Rc<Cell<u64>>,
    named: RefCell<NamedFiles>,
}

/// The names of files that the kernel has told of, each with the number of its last change. The version of such a file
/// is not asked for: there are file systems whose times say nothing.
#[derive(Default)]
struct NamedFiles {
    changes: HashMap<Box<[u8]>, u64>,
    /// Up to this change, any name may have been told of.
    forgotten: u64,
}

impl NamedFiles {
    fn note(&mut self, name: &[u8], change: u64) {
        if self.changes.len() >= NAMES_MAX {
            self.forget(change);
        }
        self.changes.insert(name.into(), change);
    }

    fn forget(&mut self, change: u64) {
        self.changes.clear();
        self.forgotten = change;
    }

    fn is_named_since(&self, name: &[u8], change: u64) -> bool {
        self.forgotten > change || self.changes.get(name).is_some_and(|last| *last > change)
    }
}

impl FolderWatch {
    /// How many changes there were; files looked at since the last one are unchanged, if they are watched.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Whether a file of this name, in whatever folder, was told of after so many changes.
    pub fn is_named_since(&self, name: &[u8], change: u64) -> bool {
        self.named.borrow().is_named_since(name, change)
    }

    /// Begins; without it nothing is watched.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn begin(&self) -> std::io::Result<()> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        *self.inotify.borrow_mut() = Some(Rc::new(worker::channel::watch(fd)?));
        Ok(())
    }

    /// Hears of changes for as long as the process lives.
    pub async fn receive(&self) {
        let Some(inotify) = self.inotify.borrow().clone() else { return };
        loop {
            let Ok(mut ready) = inotify.readable().await else { return };
            let told = self.read(inotify.get_ref());
            ready.clear_ready();
            drop(ready);
            if told {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Reads all that is told; whether there was anything.
    fn read(&self, fd: &OwnedFd) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let (mut told, mut moved) = (false, false);
        let next = self.changes.get() + 1;
        loop {
            match reader.next() {
                Ok(event) => {
                    told = true;
                    let flags = event.events();
                    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                        self.named.borrow_mut().forget(next);
                    }
                    if let Some(name) = event.file_name() {
                        self.named.borrow_mut().note(name.to_bytes(), next);
                    }
                    // A name may stand for another folder now, so all folders are watched anew.
                    moved |= flags.intersects(
                        ReadFlags::ISDIR
                            | ReadFlags::QUEUE_OVERFLOW
                            | ReadFlags::IGNORED
                            | ReadFlags::UNMOUNT,
                    ) | flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF);
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if moved {
            let watches: std::collections::HashSet<i32> =
                self.folders.borrow_mut().drain().map(|(_, watch)| watch).collect();
            for watch in watches {
                // One that is gone already is told so.
                let _ = inotify::remove_watch(fd, watch);
            }
        }
        if told {
            self.changes.set(next);
        }
        told
    }

    /// Whether all folders from the root, or the folder of a route, to the file at `path` are watched; those that are
    /// not are from now on.
    pub fn watches<E>(&self, root: &FileRoot<E>, path: &[u8]) -> WatchStatus {
        let Some(inotify) = self.inotify.borrow().clone() else {
            return WatchStatus::No;
        };
        let conn = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let outermost = root.files.outermost(path);
        let each = std::iter::once(0).chain(conn).filter(|end| *end >= outermost);
        each.map(|end| self.watches_folder(inotify.get_ref(), root, &path[..end]))
            .min()
            .unwrap_or(WatchStatus::No)
    }

    fn watches_folder<E>(&self, inotify: &OwnedFd, root: &FileRoot<E>, folder: &[u8]) -> WatchStatus {
        let key = (root.number, folder.into());
        if self.folders.borrow().contains_key(&key) {
            return WatchStatus::Before;
        }
        if self.folders.borrow().len() >= WATCHES_MAX {
            return WatchStatus::No;
        }
        let flags = WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let Some(fd) = root.files.folder(folder) else {
            return WatchStatus::No;
        };
        // SECURITY: nothing here is opened by a path that counts from where the process is.
        let watch =
            rustix::process::fchdir(fd.as_fd()).and_then(|()| inotify::add_watch(inotify, ".", flags));
        let Ok(watch) = watch else {
            return WatchStatus::No;
        };
        self.folders.borrow_mut().insert(key, watch);
        WatchStatus::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_remembered_until_there_are_too_many() {
        let mut named = NamedFiles::default();
        named.note(b"a", 5);
        assert!(
            named.is_named_since(b"a", 4) && !named.is_named_since(b"a", 5) && !named.is_named_since(b"b", 0)
        );
        for number in 0..NAMES_MAX {
            named.note(number.to_string().as_bytes(), 6);
        }
        assert!(named.changes.len() <= NAMES_MAX);
        assert!(named.is_named_since(b"b", 5), "nobody knows any more");
        assert!(!named.is_named_since(b"b", 6));
    }
}

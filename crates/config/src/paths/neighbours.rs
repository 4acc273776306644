//! A look at many paths, of which neighbours lie in one folder: the way to a folder is walked once, and each name is
//! opened from there.
//!
//! Runs in: as the module above. Input: the same. Must never: find something else, or say something else of it, than a
//! walk to each path would have when the folder was found.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::beside::may_wait;
use super::mounts::MountId;
use super::walk::PlainFolder;
use super::{Class, Found, Opener, PathFault, class_of};

/// LIMIT: folders that are held open. A site seldom names files in more: its root, certificates, keys, users.
const FOLDERS_MAX: usize = 4;

/// Looks at paths, one after the other. For one pass over them: what a folder was when it was found is not looked at
/// again.
#[derive(Debug)]
pub struct Neighbours<'o> {
    opener: &'o Opener,
    /// The last one is the newest.
    folders: RefCell<Vec<PlainFolder>>,
    /// The answer to the last question about a mount: the next look is mostly at the same path.
    last: RefCell<Option<(Class, PathBuf, Found)>>,
}

impl Opener {
    /// For a look at what many paths lead to.
    pub fn neighbours(&self) -> Neighbours<'_> {
        Neighbours { opener: self, folders: RefCell::default(), last: RefCell::default() }
    }
}

impl Neighbours<'_> {
    /// Finds the file or folder of a path, and opens it only to name it.
    ///
    /// # Errors
    /// As [`Opener::look`].
    pub fn look(&self, class: Class, path: &Path) -> Result<Found, PathFault> {
        let is_it =
            |last: &mut (Class, PathBuf, Found)| last.0 == class && last.1.as_os_str() == path.as_os_str();
        if let Some((_, _, found)) = self.last.borrow_mut().take_if(is_it) {
            return Ok(found);
        }
        self.plain(class, path).map_or_else(|| self.opener.look(class, path), Ok)
    }

    /// The same by the name of the key.
    ///
    /// # Errors
    /// As [`Opener::look`].
    pub fn look_by_key(&self, key: &str, path: &Path) -> Result<Found, PathFault> {
        self.look(class_of(key), path)
    }

    /// As [`Opener::would_wait`].
    pub fn would_wait(&self, class: Class, path: &Path) -> bool {
        !may_wait() && self.remote_mount(class, path).is_some()
    }

    /// As [`Opener::remote_mount`].
    pub fn remote_mount(&self, class: Class, path: &Path) -> Option<Option<MountId>> {
        // The kernel answers for all that a process finds which does not wait.
        if !may_wait()
            && let Some(found) = self.plain(class, path)
        {
            *self.last.borrow_mut() = Some((class, path.to_owned(), found));
            return None;
        }
        self.opener.remote_mount(class, path)
    }

    /// The same, if there is no link on the way.
    fn plain(&self, class: Class, path: &Path) -> Option<Found> {
        if class == Class::Own {
            return None;
        }
        let (walk, parent) = (self.opener.walk(class, may_wait()), path.parent()?);
        let mut folders = self.folders.borrow_mut();
        let known = folders.iter().position(|folder| folder.is_at(parent));
        let at = match known {
            Some(at) => at,
            None => {
                let folder = walk.plain_folder(path)?;
                if folders.len() == FOLDERS_MAX {
                    folders.remove(0);
                }
                folders.push(folder);
                folders.len() - 1
            }
        };
        walk.in_folder(&folders[at], path)
    }
}

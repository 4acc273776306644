//! Which files of sites are not as they were: what the kernel says of each name in the folder is compared with what was read last.
//!
//! Runs in: the launcher (root), and its copies. Input: the folder of `include`, and its names. Must never: open a file; take a file for
//! what it was that may have changed since.
//!
//! Thousands of files are a call each that way, and only those are read and parsed that differ. Links, and files of two names, are left
//! to whoever reads those that differ, and looks at them each time.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;

use rustix::fs::{AtFlags, statat};
use sys::file_version::FileVersion;

use crate::cache::{Cache, folder_stamp};
use crate::include::list;
use crate::paths::{Class, Opener};

/// LIMIT: files that differ; with more, all are read, which takes no longer then.
const DIFFERING_MAX: usize = 1000;

impl Cache {
    /// The names of the files that differ from what is known of the configuration at `main`; `None` if all are to be read: nothing is
    /// known, the folder is another one, or too many differ.
    pub fn differing(&self, main: &Path) -> Option<BTreeSet<OsString>> {
        let (folder, before) = self.folder()?;
        let main = std::path::absolute(main).ok()?;
        let opener = Opener::of(main.parent().unwrap_or(Path::new("/")));
        let opened = File::from(opener.folder(Class::Own, folder).ok()?);
        if folder_stamp(&opened.metadata().ok()?) != *before {
            return None;
        }
        let found = list(&opened).ok()?;
        let differs = |name: &OsStr| match self.file(name) {
            Some(known) if known.is_seen => {
                let now = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW);
                now.map_or(true, |now| !known.is_as(&FileVersion::from(&now)))
            }
            Some(_) => false,
            None => true,
        };
        let names = found.iter().map(|file| &file.name);
        let mut differing: BTreeSet<OsString> = names.clone().filter(|name| differs(name)).cloned().collect();
        let new = differing.iter().filter(|name| self.file(name).is_none()).count();
        if found.len() - new < self.files().len() {
            let there: BTreeSet<&OsString> = names.collect();
            differing.extend(self.names().filter(|name| !there.contains(name)).cloned());
        }
        (differing.len() <= DIFFERING_MAX).then_some(differing)
    }
}

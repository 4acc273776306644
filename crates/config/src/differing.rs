//! Which files of sites are not as they were: what the kernel says of each name in the folder is compared with what was
//! read last.
//!
//! Runs in: the launcher (root), and its copies. Input: the folder of `include`, and its names. Must never: open a
//! file; take a file for what it was that may have changed since.
//!
//! Thousands of files are a call each that way, and only those are read and parsed that differ. Links, and files of two
//! names, are left to whoever reads those that differ, and looks at them each time.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Stat, openat, statat};
use sys::file_version::FileVersion;

use crate::cache::{Cache, folder_stamp};
use crate::include::is_read;
use crate::paths::{Class, Opener};

/// LIMIT: files that differ; with more, all are read, which takes no longer then.
const DIFFERING_MAX: usize = 1000;
/// Bytes of names that the kernel is asked for at once.
const LISTED_AT_ONCE: usize = 32 << 10;

impl Cache {
    /// The names of the files that differ from what is known of the configuration at `main`; `None` if all are to be
    /// read: nothing is known, the folder is another one, or too many differ.
    pub fn differing(&self, main: &Path) -> Option<BTreeSet<OsString>> {
        let (folder, before) = self.folder()?;
        let main = std::path::absolute(main).ok()?;
        let opener = Opener::of(main.parent().unwrap_or(Path::new("/")));
        let opened = File::from(opener.folder(Class::Own, folder).ok()?);
        if folder_stamp(&opened.metadata().ok()?) != *before {
            return None;
        }
        let mut listed = 0;
        for_each_name(&opened, |_| listed += 1).ok()?;
        let (mut differing, mut there) = (BTreeSet::new(), 0);
        for (name, known) in self.named_files() {
            let now = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW);
            there += usize::from(now.is_ok());
            let is_as = |now: Stat| !known.is_seen || known.is_as(&FileVersion::from(&now));
            if !now.is_ok_and(is_as) {
                differing.insert(name.clone());
            }
        }
        // To look each name up takes longer than to count them. A name that comes while another one goes is seen by the
        // watch of the folder.
        if listed != there {
            let mut add = |name: &OsStr| {
                if self.file(name).is_none() {
                    differing.insert(name.to_owned());
                }
            };
            for_each_name(&opened, &mut add).ok()?;
        }
        (differing.len() <= DIFFERING_MAX).then_some(differing)
    }
}

/// Calls `with` for each name in a folder whose file is read.
fn for_each_name(folder: &File, mut with: impl FnMut(&OsStr)) -> rustix::io::Result<()> {
    let folder = openat(folder, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut room = vec![MaybeUninit::uninit(); LISTED_AT_ONCE];
    let mut entries = RawDir::new(folder, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_read(name) {
            with(name);
        }
    }
    Ok(())
}

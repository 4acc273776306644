//! The files of sites as they were read last, so that a change of one of thousands reads one.
//!
//! Runs in: the launcher (root). Input: the operator's files. Must never: take a file for what it was that may have changed since, or
//! keep what was not found right.

use std::collections::HashMap;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::diagnostic::Text;
use crate::raw::{RawSite, in_files};
use crate::schema::{Config, Site};

/// LIMIT: a file that was changed so lately is read again the next time, as one more change might have the same time.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// By what a file is known not to have changed: device, inode, size, and time of the last change of any kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(found: &Metadata) -> Self {
        let changed = (found.ctime(), found.ctime_nsec());
        Self { device: found.dev(), inode: found.ino(), size: found.size(), changed }
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(self.changed.0), u32::try_from(self.changed.1))
        else {
            return false;
        };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(changed).is_ok_and(|since| since >= SETTLED_AFTER)
    }
}

/// A file of sites, decoded.
#[derive(Clone)]
pub(crate) struct ReadFile {
    pub(crate) path: PathBuf,
    pub(crate) stamp: Stamp,
    pub(crate) text: Rc<Text>,
    pub(crate) sites: Vec<Rc<RawSite>>,
}

/// A file of sites that was found right.
#[derive(Clone)]
pub(crate) struct KnownFile {
    stamp: Stamp,
    pub(crate) text: Rc<Text>,
    pub(crate) sites: Vec<(Rc<RawSite>, Arc<Site>)>,
}

/// What `Config::load_again` has read. A file in it that has not changed is not read again, and its sites are looked at only
/// beside others that have changed: what they name on disk is not looked for once more.
#[derive(Default)]
pub struct Cache {
    /// The main file: whatever changes there can change what is right in all others.
    main: String,
    files: HashMap<PathBuf, KnownFile>,
    /// Where the offsets of the next text begin; those of texts that are kept stay what they are.
    next: Option<usize>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl Cache {
    /// Forgets everything if the main file is another one.
    pub(crate) fn begin(&mut self, main: &str) {
        if self.main != main {
            *self = Self { main: main.to_owned(), ..Self::default() };
        }
    }

    pub(crate) fn next(&self) -> Option<usize> {
        self.next
    }

    /// A file that has not changed.
    pub(crate) fn known(&self, path: &Path, stamp: &Stamp) -> Option<KnownFile> {
        self.files.get(path).filter(|known| known.stamp == *stamp).cloned()
    }

    /// Keeps what was read and found right, and nothing else.
    pub(crate) fn keep(&mut self, read: Vec<ReadFile>, next: usize, config: &Config) {
        let now = SystemTime::now();
        let mut sites = in_files(&read, &config.sites).iter();
        let known = read.into_iter().filter_map(|ReadFile { path, stamp, text, sites: raw }| {
            let sites = raw.into_iter().zip(sites.by_ref().cloned()).collect();
            stamp.is_settled(now).then_some((path, KnownFile { stamp, text, sites }))
        });
        self.files = known.collect();
        self.next = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_just_now_is_not_settled() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let stamp = Stamp { device: 1, inode: 2, size: 3, changed: (99, 500_000_000) };
        assert!(!stamp.is_settled(now) && stamp.is_settled(now + SETTLED_AFTER * 2));
        // A clock that was set back says nothing.
        assert!(!stamp.is_settled(now - SETTLED_AFTER));
    }
}

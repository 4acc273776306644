//! The files of sites as they were read last, so that a change of one of thousands reads one.
//!
//! Runs in: the launcher (root). Input: the operator's files. Must never: take a file for what it was that may have
//! changed since, or keep what was not found right.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sys::file_version::FileVersion;

use crate::diagnostic::Text;
use crate::known::{KnownFile, ReadFile, in_main};
use crate::portions::Portions;
use crate::schema::{Config, Include, Site};
use crate::shared_list::SharedList;
use crate::source::Source;
use crate::taken::TakenNames;

/// LIMIT: a file that was changed so lately is read again the next time, as one more change might have the same time.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Which folder it is, and who may write there: device, inode, owner and mode.
pub(crate) type FolderStamp = (u64, u64, u32, u32);

pub(crate) fn folder_stamp(found: &Metadata) -> FolderStamp {
    (found.dev(), found.ino(), found.uid(), found.mode())
}

/// The result of `Config::load_again`. A file in it that has not changed is not read again, and its sites are looked at
/// only beside others that have changed: what they name on disk is not looked for once more.
#[cfg_attr(test, derive(Clone))]
#[derive(Default)]
pub struct Cache {
    /// The main file: whatever changes there can change what is right in all others.
    main: String,
    folder: Option<(PathBuf, FolderStamp)>,
    /// By their names, which is the order in which they are read.
    files: BTreeMap<OsString, Rc<KnownFile>>,
    /// The texts of all of them.
    texts: Portions,
    /// How the configuration names them.
    include: Option<Arc<Include>>,
    /// The sites of the configuration that was read last, those of the main file first.
    sites: SharedList<Arc<Site>>,
    /// What their sites have that no other may have; made when it is first asked for.
    taken: Option<TakenNames>,
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

    /// Whether all files of the folder are known that this main file includes.
    pub(crate) fn is_whole(&self, main: &str) -> bool {
        self.main == main && self.next.is_some() && self.folder.is_some()
    }

    pub(crate) fn next(&self) -> Option<usize> {
        self.next
    }

    /// The folder of the files, and as it was.
    pub(crate) fn folder(&self) -> Option<&(PathBuf, FolderStamp)> {
        self.folder.as_ref()
    }

    /// A file that has not changed.
    pub(crate) fn known(&self, path: &Path, stamp: &FileVersion) -> Option<Rc<KnownFile>> {
        let known = self.files.get(path.file_name()?)?;
        (known.path.as_os_str() == path.as_os_str() && known.is_as(stamp)).then(|| Rc::clone(known))
    }

    /// The file of this name.
    pub(crate) fn file(&self, name: &OsStr) -> Option<&Rc<KnownFile>> {
        self.files.get(name)
    }

    /// All of them, in the order of their names.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &Rc<KnownFile>> {
        self.files.values()
    }

    /// All of them with their names, in the order of these.
    pub(crate) fn named_files(&self) -> impl Iterator<Item = (&OsString, &Rc<KnownFile>)> {
        self.files.iter()
    }

    /// The names of those whose changes nobody sees who watches the folder.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = &OsString> {
        self.files.iter().filter(|(_, file)| !file.is_seen).map(|(name, _)| name)
    }

    /// Whether these are the files that a source has, with their texts.
    pub(crate) fn is_of(&self, source: &Source) -> bool {
        let same = |name: &OsStr, text: &Rc<Text>| {
            let known = self.files.get(name);
            known.is_some_and(|known| Rc::ptr_eq(&known.text, text) || known.text.as_str() == text.as_str())
        };
        if self.main != *source.main || self.texts.is_one_with(&source.included) {
            return self.main == *source.main;
        }
        self.files.len() == source.included.files().count()
            && source
                .included
                .files()
                .all(|(path, text)| path.file_name().is_some_and(|name| same(name, text)))
    }

    /// The texts of all files.
    pub(crate) fn texts(&self) -> &Portions {
        &self.texts
    }

    /// How the configuration names the files.
    pub(crate) fn include(&self) -> Option<Arc<Include>> {
        self.include.clone()
    }

    /// All sites: the first ones of `read`, which are in the main file, and then those of the files as they are known.
    pub(crate) fn all_sites(
        &mut self,
        read: &SharedList<Arc<Site>>,
        in_main: usize,
    ) -> SharedList<Arc<Site>> {
        let of_files = self.files.values().flat_map(|file| &file.sites).map(|(_, site)| site);
        // Most of thousands are where they were.
        self.sites.become_of(read.iter().take(in_main).chain(of_files), Arc::ptr_eq);
        self.sites.clone()
    }

    /// What all sites have that no other may have. It is gone from here until it is given back.
    pub(crate) fn take_taken(&mut self) -> Option<TakenNames> {
        self.taken.take()
    }

    pub(crate) fn give_back(&mut self, taken: TakenNames) {
        self.taken = Some(taken);
    }

    /// Has all that was read count as settled.
    #[cfg(test)]
    pub(crate) fn settle(&mut self) {
        self.files.values_mut().for_each(|file| Rc::make_mut(file).is_settled = true);
    }

    /// Keeps what was read and found right, and nothing else.
    pub(crate) fn keep(&mut self, read: Vec<ReadFile>, next: usize, config: &Config) {
        self.files.clear();
        (self.taken, self.texts, self.include) = (None, Portions::default(), config.include.clone());
        self.sites = config.sites.clone();
        self.change([], read, next, config);
        let folder = config.include.as_ref().map(|include| &include.folder);
        let found = folder.and_then(|folder| Some((folder.clone(), folder_stamp(&folder.metadata().ok()?))));
        self.folder = found;
    }

    /// The same of files that have come or changed, beside those that are known; others have gone.
    pub(crate) fn change<'n>(
        &mut self,
        gone: impl IntoIterator<Item = &'n OsString>,
        read: Vec<ReadFile>,
        next: usize,
        config: &Config,
    ) {
        let now = SystemTime::now();
        let mut sites = config.sites.iter().skip(in_main(&read, config.sites.len()));
        let files = config.include.iter().flat_map(|include| &include.files);
        let mut changed: BTreeSet<OsString> = gone.into_iter().cloned().collect();
        let mut are_others = false;
        changed.iter().for_each(|name| are_others |= self.files.remove(name).is_some());
        for (ReadFile { path, stamp, is_seen, text, sites: raw, known }, listed) in
            read.into_iter().zip(files)
        {
            let Some(name) = path.file_name().map(OsStr::to_owned) else { continue };
            let sites = raw.into_iter().zip(sites.by_ref().cloned()).collect();
            let before = self.files.get(&name);
            let new = || {
                let before = before.map(|before| &before.listed).filter(|before| *before == listed);
                let (is_settled, listed) =
                    (stamp.is_settled(now, SETTLED_AFTER), before.unwrap_or(listed).clone());
                Rc::new(KnownFile { path, stamp, is_settled, is_seen, text, sites, listed })
            };
            let file = known.unwrap_or_else(new);
            are_others |= before.is_none_or(|before| !Arc::ptr_eq(&before.listed, &file.listed));
            changed.insert(name.clone());
            self.files.insert(name, file);
        }
        self.next = Some(next);
        self.texts = self.texts.changed(&changed, &self.files);
        if are_others {
            self.include = config.include.as_ref().map(|include| {
                let mut files = self.include.as_ref().map(|before| before.files.clone()).unwrap_or_default();
                files.become_of(self.files.values().map(|file| &file.listed), Arc::ptr_eq);
                Arc::new(Include { folder: include.folder.clone(), files })
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_just_now_is_not_settled() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let stamp = FileVersion { changed_ns: 99_500_000_000, ..FileVersion::default() };
        assert!(
            !stamp.is_settled(now, SETTLED_AFTER) && stamp.is_settled(now + SETTLED_AFTER * 2, SETTLED_AFTER)
        );
        // A clock that was set back says nothing.
        assert!(!stamp.is_settled(now - SETTLED_AFTER, SETTLED_AFTER));
    }
}

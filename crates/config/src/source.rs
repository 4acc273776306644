//! The texts that a configuration was read from, so that a program that takes the place of this one reads the same.
//!
//! Runs in: the launcher (root). Input: texts that were read from the operator's files. Must never: look at the files
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sys::file_version::FileVersion;

use crate::diagnostic::{Problems, Text};
use crate::known::{Content, SiteFile};
use crate::portions::Portions;

/// The main file of a configuration and the files that it includes: paths and texts. A clone shares them.
#[derive(Clone)]
pub struct Source {
    pub(crate) path: Rc<Path>,
    pub(crate) main: Rc<str>,
    pub(crate) included: Portions,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Source {
    /// The source of these files, the main one first; nothing without a file. The path of the main file must be
    /// absolute.
    pub fn new(files: impl IntoIterator<Item = (PathBuf, String)>) -> Option<Self> {
        let mut files = files.into_iter();
        let (path, main) = files.next()?;
        // Only to hold the texts; mistakes are reported when they are parsed.
        let mut texts = Problems::new(&path.display().to_string(), &main);
        let included = files.map(|(path, text)| {
            let text = texts.add(&path.display().to_string(), &text);
            (path.into(), text)
        });
        Some(Self { included: Portions::of(included), path: path.into(), main: main.into() })
    }

    /// The texts of a main file and of the files beside it.
    pub(crate) fn of(path: &Path, main: &str, texts: &Portions) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path: path.into(), main: main.into(), included: texts.clone() }
    }

    /// The files, the main one first.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        let included = self.included.files().map(|(path, text)| (&**path, text.as_str()));
        std::iter::once((&*self.path, &*self.main)).chain(included)
    }

    /// The included files by their names.
    pub(crate) fn by_name(&self) -> BTreeMap<OsString, (Rc<Path>, Rc<Text>)> {
        let named = |(path, text): &(Rc<Path>, Rc<Text>)| {
            Some((path.file_name()?.to_owned(), (path.clone(), text.clone())))
        };
        self.included.files().filter_map(named).collect()
    }

    /// The names of the included files.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.included.files().filter_map(|(path, _)| path.file_name())
    }

    /// The included files whose texts are others than in `before`: without that, all of them.
    pub fn differing(&self, before: Option<&Self>) -> Vec<(&OsStr, &str)> {
        let then: BTreeMap<&Path, &Rc<Text>> = before
            .iter()
            .flat_map(|before| before.included.files_beside(Some(&self.included)))
            .map(|(path, text)| (&**path, text))
            .collect();
        let is_as_before = |path: &Path, text: &Rc<Text>| {
            then.get(path).is_some_and(|old| Rc::ptr_eq(old, text) || old.as_str() == text.as_str())
        };
        let new = self.included.files_beside(before.map(|before| &before.included));
        let new = new.filter(|(path, text)| !is_as_before(path, text));
        new.filter_map(|(path, text)| Some((path.file_name()?, text.as_str()))).collect()
    }

    /// The names of the included files of `before` that are none of these any more.
    pub fn gone_since<'b>(&self, before: &'b Self) -> Vec<&'b OsStr> {
        let now = self.included.files_beside(Some(&before.included));
        let now: BTreeSet<&OsStr> = now.filter_map(|(path, _)| path.file_name()).collect();
        let then = before.included.files_beside(Some(&self.included));
        then.filter_map(|(path, _)| path.file_name()).filter(|name| !now.contains(name)).collect()
    }

    /// The included files, as if they had just been read.
    pub(crate) fn site_files(&self) -> impl Iterator<Item = SiteFile> {
        self.included.files().map(|(path, text)| SiteFile {
            path: path.clone(),
            stamp: FileVersion::default(),
            is_seen: false,
            content: Content::Text(text.as_str().into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Examine, Finding, Setting, Subject};

    struct NoExaminer;

    impl Examine for NoExaminer {
        fn examine(&self, _: &Setting<'_>, _: &[Subject<'_>]) -> Vec<(usize, Finding)> {
            Vec::new()
        }
    }

    #[test]
    fn what_was_read_is_what_counts() {
        let folder = std::env::temp_dir().join(format!("bulkhead-source-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (main, site) = (folder.join("b.toml"), folder.join("sites/a.toml"));
        for name in ["sites", "a"] {
            std::fs::create_dir(folder.join(name)).unwrap();
        }
        let text = "include = \"sites/*.toml\"\n[[listen]]\naddress = \"127.0.0.1:1\"\n";
        std::fs::write(&main, text).unwrap();
        std::fs::write(&site, "[[site]]\nname = \"a\"\nhost = [\"a.test\"]\nroot = \"../a\"\n").unwrap();
        let mut cache = crate::Cache::default();
        let (config, source) = Config::load_again(&main, &NoExaminer, &mut cache).unwrap();
        std::fs::write(&site, "nonsense").unwrap();
        let files = source.files().map(|(path, text)| (path.to_owned(), text.to_owned()));
        let again = Source::new(files).unwrap();
        assert_eq!(Config::of_source(&again, None).unwrap().sites, config.sites);
        assert!(Config::load(&main).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! What others have opened for this process, as its file system may not answer: folders, the contents of files,
//! programs.
//!
//! Runs in: the launcher, as root. Sees: descriptors that a copy of the launcher has handed over. Never: asks their
//! file systems for anything.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::{Beside, Class, Found, PathFault};

/// LIMIT: how long something is kept that was opened for the start of a process: longer than it takes to start one.
const KEPT: Duration = Duration::from_secs(60);

/// What is opened: a path, by the rule of its key.
pub type FileKey = (Class, PathBuf);

/// Why something was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// Its file system does not answer.
    Silent,
    /// Something is wrong with it, and this is the remedy.
    Fault(String, String),
}

#[derive(Debug)]
struct Answer {
    found: Result<Found, NotOpened>,
    at: Instant,
    /// Whether nothing has come when it was asked for last.
    is_silent: bool,
}

/// All that was opened.
#[derive(Debug, Default)]
pub struct OpenedFiles {
    answers: RefCell<BTreeMap<FileKey, Answer>>,
    /// What was looked at since somebody has asked for that.
    looked: RefCell<BTreeSet<FileKey>>,
    /// What is read again when it has changed, and kept until then.
    kept: RefCell<BTreeSet<FileKey>>,
}

impl OpenedFiles {
    /// Takes what was opened, or why it was not; lets go of what has been kept for long enough. What is read again when
    /// it has changed stays as it was while its file system does not answer.
    pub(crate) fn put(
        &self,
        opened: impl IntoIterator<Item = (FileKey, Result<Found, NotOpened>)>,
        at: Instant,
    ) {
        let (mut answers, kept) = (self.answers.borrow_mut(), self.kept.borrow());
        answers.retain(|file, answer| answer.at + KEPT > at || kept.contains(file));
        for (file, found) in opened {
            let is_silent = matches!(found, Err(NotOpened::Silent));
            match answers.get_mut(&file).filter(|_| is_silent && kept.contains(&file)) {
                Some(before) => (before.at, before.is_silent) = (at, true),
                None => drop(answers.insert(file, Answer { found, at, is_silent })),
            }
        }
    }

    /// Whether a file was asked for since then, and that has ended; and whether nothing has come.
    pub(crate) fn answer_since(&self, file: &FileKey, since: Instant) -> Option<bool> {
        let answers = self.answers.borrow();
        answers.get(file).filter(|answer| answer.at >= since).map(|answer| answer.is_silent)
    }

    /// Whether a file was ever asked for that is still known.
    pub(crate) fn is_known(&self, file: &FileKey) -> bool {
        self.answers.borrow().contains_key(file)
    }

    /// What was looked at since this was asked the last time, if it was not this process that could look.
    pub fn take_looked(&self) -> BTreeSet<FileKey> {
        self.looked.take()
    }

    /// Keeps these, and no others.
    pub(crate) fn keep(&self, files: BTreeSet<FileKey>) {
        self.kept.replace(files);
    }
}

impl Beside for OpenedFiles {
    fn found(&self, class: Class, path: &Path) -> Result<Found, PathFault> {
        let file = (class, path.to_owned());
        let at = || path.to_owned();
        let answers = self.answers.borrow();
        let found = match answers.get(&file).map(|answer| &answer.found) {
            None => Err(PathFault::Remote { at: at(), mount: None }),
            Some(Err(NotOpened::Silent)) => Err(PathFault::Silent { at: at() }),
            Some(Err(NotOpened::Fault(problem, remedy))) => {
                Err(PathFault::Told { problem: problem.clone(), remedy: remedy.clone() })
            }
            Some(Ok(found)) => found.again().map_err(|source| PathFault::Io { at: at(), source }),
        };
        self.looked.borrow_mut().insert(file);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Held, PathOwner, Placement};

    fn found() -> Found {
        let file = std::fs::File::open("/").unwrap().into();
        let stat = rustix::fs::fstat(&file).unwrap();
        let folder = PathOwner { path: "/".into(), uid: 0, mode: 0o755 };
        Found {
            file,
            held: Held::Folder,
            stat,
            real: "/".into(),
            placed: Placement::Root,
            folder,
            is_remote: true,
        }
    }

    #[test]
    fn what_was_opened_is_found_until_it_is_old() {
        let (opened, now) = (OpenedFiles::default(), Instant::now());
        let file = |path: &str| (Class::Published, PathBuf::from(path));
        let look = |path: &str| opened.found(Class::Published, Path::new(path));
        assert!(matches!(look("/a"), Err(PathFault::Remote { .. })));
        assert_eq!(opened.take_looked(), [file("/a")].into());
        let fault = NotOpened::Fault("is not there".into(), "make it".into());
        let answers =
            [(file("/a"), Ok(found())), (file("/b"), Err(NotOpened::Silent)), (file("/c"), Err(fault))];
        opened.put(answers, now);
        assert!(look("/a").is_ok() && matches!(look("/b"), Err(PathFault::Silent { .. })));
        assert_eq!(look("/c").unwrap_err().problem(), "is not there");
        assert!(opened.found(Class::Private, Path::new("/a")).is_err(), "another rule");
        let later = now + Duration::from_millis(1);
        let since = |path: &str, since| opened.answer_since(&file(path), since);
        assert_eq!([since("/a", now), since("/b", now), since("/a", later)], [Some(false), Some(true), None]);
        opened.keep([file("/a")].into());
        opened.put([(file("/d"), Ok(found()))], now + KEPT);
        assert!(look("/a").is_ok() && look("/b").is_err() && look("/d").is_ok());
        assert_eq!(since("/b", now), None, "it is no longer known");
        let silent = || ["/a", "/d"].map(|path| (file(path), Err(NotOpened::Silent)));
        opened.put(silent(), now + KEPT);
        assert!(look("/a").is_ok() && look("/d").is_err(), "only what is kept");
        assert_eq!(since("/a", now + KEPT), Some(true));
    }
}

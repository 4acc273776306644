//! Programs that were found unfit, for as long as nothing has changed: who starts one again and again is not answered
//! anew.
//!
//! Runs in: the launcher, as root. Sees: what the inspector and loaders have said of programs. Never: remembers longer
//! than a minute what an operator may have repaired elsewhere, such as a library that was missing.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use sys::file_version::FileVersion;

/// LIMIT: how long a failure is believed. A service has 30 attempts in 50 s until it is broken: all of them cost one
/// examination.
const FAILED_FOR: Duration = Duration::from_secs(60);

/// What was wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The program itself.
    Program(String),
    /// This library, or these, and what is wrong with it.
    Library(String, String),
}

impl Failure {
    /// The error that it is for the program at `path`.
    pub fn of(self, path: &Path) -> Error {
        match self {
            Self::Program(problem) => Error::program(path, problem),
            Self::Library(library, problem) => Error::Library { program: path.to_owned(), library, problem },
        }
    }
}

/// The failures of programs, by their paths or by who executes them.
#[derive(Debug, Default)]
pub struct Failures<Key: Eq + Hash>(RefCell<HashMap<Key, (FileVersion, Instant, Failure)>>);

impl<Key: Eq + Hash> Failures<Key> {
    /// What was wrong with this version of a program.
    pub fn known<Known: Eq + Hash + ?Sized>(
        &self,
        program: &Known,
        version: FileVersion,
        now: Instant,
    ) -> Option<Failure>
    where
        Key: Borrow<Known>,
    {
        let known = self.0.borrow();
        let (failed, since, failure) = known.get(program)?;
        (*failed == version && now.duration_since(*since) < FAILED_FOR).then(|| failure.clone())
    }

    /// Remembers what is wrong with it.
    pub fn remember<Known: ToOwned<Owned = Key> + ?Sized>(
        &self,
        program: &Known,
        version: FileVersion,
        failure: Failure,
        now: Instant,
    ) {
        let mut known = self.0.borrow_mut();
        known.retain(|_, (_, since, _)| now.duration_since(*since) < FAILED_FOR);
        known.insert(program.to_owned(), (version, now, failure));
    }

    /// What was found wrong last with a program, and with which version of it.
    pub fn latest<Known: Eq + Hash + ?Sized>(&self, program: &Known) -> Option<(FileVersion, Failure)>
    where
        Key: Borrow<Known>,
    {
        self.0.borrow().get(program).map(|(version, _, failure)| (*version, failure.clone()))
    }

    /// A file has another version now, and is as it was.
    pub fn renew(&self, before: FileVersion, after: FileVersion) {
        let mut known = self.0.borrow_mut();
        let of_file = known.values_mut().filter(|(version, ..)| *version == before);
        of_file.for_each(|(version, ..)| *version = after);
    }

    /// Forgets a program, which somebody has had started anew.
    pub fn forget<Known: Eq + Hash + ?Sized>(&self, program: &Known)
    where
        Key: Borrow<Known>,
    {
        self.0.borrow_mut().remove(program);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::spawn::program;

    #[test]
    fn a_failure_is_of_one_version_and_of_a_minute() {
        let (failures, path, now) =
            (Failures::<PathBuf>::default(), Path::new("/proc/self/exe"), Instant::now());
        let version = program::version(path).unwrap();
        let other = program::version(Path::new("/")).unwrap();
        let failure = Failure::Program("is nothing".into());
        failures.remember(path, version, failure.clone(), now);
        assert_eq!(failures.known(path, version, now + Duration::from_secs(59)), Some(failure.clone()));
        assert_eq!(failures.known(path, version, now + FAILED_FOR), None);
        assert_eq!(failures.known(path, other, now), None);
        failures.remember(Path::new("/other"), version, failure, now + FAILED_FOR);
        assert_eq!(failures.known(path, version, now), None, "what is old is not kept");
        failures.renew(version, other);
        assert!(failures.known(Path::new("/other"), other, now + FAILED_FOR).is_some());
        failures.forget(Path::new("/other"));
        assert_eq!(failures.known(Path::new("/other"), version, now + FAILED_FOR), None);
    }
}

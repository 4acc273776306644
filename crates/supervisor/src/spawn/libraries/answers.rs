//! What loaders have answered, for as long as the files have not changed.
//!
//! Runs in: the launcher, as root. Sees: paths that a loader named, sizes and times of what is there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use crate::spawn::program;
use sys::file_version::FileVersion;

/// What loaders have answered, by program: who is started again is not asked again.
#[derive(Debug, Default)]
pub struct Answers(pub(crate) RefCell<HashMap<PathBuf, Known>>);

/// An answer, with the versions of all files on which it depends.
#[derive(Clone, Debug)]
pub struct Known {
    pub(crate) program: Option<FileVersion>,
    pub(crate) files: Vec<(PathBuf, Option<FileVersion>)>,
}

impl Known {
    pub(crate) fn of(program: Option<FileVersion>, files: Vec<PathBuf>) -> Self {
        let files = files.into_iter().map(|path| {
            let version = program::version(&path);
            (path, version)
        });
        Self { program, files: files.collect() }
    }

    /// Whether nothing has changed since, a library neither: its new version may need others.
    pub(crate) fn holds(&self, program: Option<FileVersion>) -> bool {
        self.program.is_some()
            && self.program == program
            && self.files.iter().all(|(path, version)| program::version(path) == *version)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_answer_holds_until_a_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("library");
        std::fs::write(&file, "one").unwrap();
        let program = program::version(Path::new("/proc/self/exe"));
        let known = Known::of(program, vec![file.clone(), "/none".into()]);
        assert!(known.holds(program));
        assert!(!known.holds(program::version(&file)), "another program");
        assert!(!Known::of(None, vec![]).holds(None), "a program that cannot be examined");
        std::fs::write(&file, "three").unwrap();
        assert!(!known.holds(program), "another library");
        std::fs::remove_file(&file).unwrap();
        assert!(!known.holds(program), "no library");
    }
}

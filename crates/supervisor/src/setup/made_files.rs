//! Files and folders that were made for something that does not hold yet, and that go with it.
//!
//! Runs in: the launcher, as root. Sees: names in its own folder of logs, which nobody else can write. Never: removes a
//! file that was there before, or in which there is something.

use std::path::{Path, PathBuf};

/// What this process has made. Dropped, it is removed again, unless [`MadeFiles::keep`] says that they hold.
#[derive(Debug, Default)]
pub struct MadeFiles {
    paths: Vec<PathBuf>,
}

impl MadeFiles {
    /// Notes what is about to be made, if there is nothing of its name.
    pub fn note(&mut self, path: &Path) {
        if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            self.paths.push(path.to_owned());
        }
    }

    /// What was made stays.
    pub fn keep(&mut self) {
        self.paths.clear();
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        // What cannot be removed is an empty log, or a folder in which there is something.
        for path in self.paths.iter().rev() {
            let Ok(found) = path.symlink_metadata() else { continue };
            let _ = match found.is_dir() {
                true => std::fs::remove_dir(path),
                false if found.is_file() && found.len() == 0 => std::fs::remove_file(path),
                false => Ok(()),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_goes_unless_it_was_there_or_has_something_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = || {
            let names = std::fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> =
                names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        std::fs::write(path("before"), "").unwrap();
        for is_kept in [false, true] {
            let mut made = MadeFiles::default();
            for (name, text) in [("before", ""), ("new", ""), ("written", "line\n")] {
                made.note(&path(name));
                std::fs::write(path(name), text).unwrap();
            }
            if is_kept {
                made.keep();
            }
            drop(made);
            let expected: &[&str] =
                if is_kept { &["before", "new", "written"] } else { &["before", "written"] };
            assert_eq!(names(), expected);
            std::fs::remove_file(path("written")).unwrap();
        }
    }
}

//! Copies of files of sites as they were good last: what a server starts with where the file itself has a mistake.
//!
//! Runs in: the launcher, as root: it reads a copy at a start, and a copy of the launcher writes them, beside the loop;
//! and `bulkhead check`, which reads them. Sees: a folder in the state folder, which its owner alone can write. Never:
//! follows a link, reads a file of somebody else, or keeps a copy of a file that is gone: who comes by its name later
//! is somebody else.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use config::FILE_BYTES_MAX;
use rustix::fs::OFlags;
use sys::absence::if_there;

use crate::directories;

/// The folder in the state folder.
const FOLDER: &str = "good";
/// How the names of files begin that are being written; no file of sites has such a name.
const BEGUN: &str = ".new-";

/// See the file's head.
#[derive(Clone, Debug)]
pub struct GoodCopies {
    folder: PathBuf,
}

impl GoodCopies {
    /// Those in a state folder.
    pub fn of(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The copy of the file of this name; none that somebody else could have written.
    ///
    /// # Errors
    /// There may be one, which cannot be read.
    pub fn read(&self, name: &OsStr) -> io::Result<Option<String>> {
        directories::examine(&self.folder).map_err(|error| io::Error::other(error.to_string()))?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened =
            File::options().read(true).custom_flags(flags.bits() as i32).open(self.folder.join(name));
        let Some(file) = if_there(opened)? else { return Ok(None) };
        let found = file.metadata()?;
        let is_own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
        if !found.is_file() || !is_own || found.len() > FILE_BYTES_MAX {
            return Ok(None);
        }
        let mut text = String::new();
        // It may grow, but not for whoever reads it.
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Takes the copy of a file away whose site was removed.
    ///
    /// # Errors
    /// It cannot be.
    pub fn forget(&self, name: &OsStr) -> io::Result<()> {
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes copies of these texts where there are others, and takes those away of files that have gone.
    ///
    /// # Errors
    /// What could not be done, with the error. The copies are those of before then, or some of them.
    pub fn keep<'t>(
        &self,
        texts: impl Iterator<Item = (&'t OsStr, &'t str)>,
        gone: &Gone<'_>,
    ) -> Result<(), (&'static str, io::Error)> {
        let other = |error: crate::error::Error| ("make the folder", io::Error::other(error.to_string()));
        directories::own_directory(&self.folder, 0o700).map_err(other)?;
        match gone {
            Gone::These(names) => names.iter().try_for_each(|name| self.forget(name)),
            Gone::AllBut(names) => self.forget_all_but(names),
        }
        .map_err(|error| ("remove", error))?;
        let mut begun = Vec::new();
        for (number, (name, text)) in texts.enumerate() {
            if !self.read(name).is_ok_and(|kept| kept.as_deref() == Some(text)) {
                let path = self.folder.join(format!("{BEGUN}{number}"));
                write(&path, text).map_err(|error| ("write", error))?;
                begun.push((path, self.folder.join(name)));
            }
        }
        if begun.is_empty() {
            return Ok(());
        }
        // Once for all of them: the names lead to whole files, whenever the machine stops.
        let folder = File::open(&self.folder).map_err(|error| ("open", error))?;
        rustix::fs::syncfs(&folder).map_err(|error| ("write to the disk", error.into()))?;
        begun.into_iter().try_for_each(|(from, to)| fs::rename(from, to)).map_err(|error| ("rename", error))
    }

    fn forget_all_but(&self, names: &BTreeSet<&OsStr>) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            if !names.contains(&*name) {
                fs::remove_file(self.folder.join(&name))?;
            }
        }
        Ok(())
    }
}

/// Files of which there is to be no copy any more.
#[derive(Debug)]
pub enum Gone<'n> {
    /// These: what else there is, is known.
    These(Vec<&'n OsStr>),
    /// All but these. The whole folder is listed.
    AllBut(BTreeSet<&'n OsStr>),
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn all_but<'n>(names: &'n [&'n str]) -> Gone<'n> {
        Gone::AllBut(names.iter().map(OsStr::new).collect())
    }

    #[test]
    fn what_is_kept_is_what_was_good_last_of_files_that_are_there() {
        let state = tempfile::tempdir().unwrap();
        let copies = GoodCopies::of(state.path());
        let read = |name: &str| copies.read(OsStr::new(name)).unwrap();
        let keep = |texts: &[(&str, &str)], there: &[&str]| {
            let texts = texts.iter().map(|(name, text)| (OsStr::new(*name), *text));
            copies.keep(texts, &all_but(there)).unwrap();
        };
        assert_eq!(read("a.toml"), None);
        keep(&[("a.toml", "1"), ("b.toml", "2")], &["a.toml", "b.toml"]);
        assert_eq!((read("a.toml").as_deref(), read("b.toml").as_deref()), (Some("1"), Some("2")));
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(copies.folder().into()), mode(copies.folder().join("a.toml"))), (0o700, 0o600));
        // One that is left out keeps its copy; one that is gone leaves none, nor what was begun.
        fs::write(copies.folder().join(".new-0"), "half").unwrap();
        keep(&[("a.toml", "3")], &["a.toml", "b.toml"]);
        assert_eq!((read("a.toml").as_deref(), read("b.toml").as_deref()), (Some("3"), Some("2")));
        keep(&[("a.toml", "3")], &["a.toml"]);
        assert_eq!((read("a.toml").as_deref(), read("b.toml")), (Some("3"), None));
        assert_eq!(fs::read_dir(copies.folder()).unwrap().count(), 1);
        // Where it is known what has gone, nothing else is looked at; what has no copy leaves none.
        let gone = Gone::These(vec![OsStr::new("a.toml"), OsStr::new("b.toml")]);
        copies.keep([(OsStr::new("c.toml"), "4")].into_iter(), &gone).unwrap();
        assert_eq!((read("a.toml"), read("c.toml").as_deref()), (None, Some("4")));
    }

    #[test]
    fn nothing_is_read_that_another_could_have_written() {
        let state = tempfile::tempdir().unwrap();
        let copies = GoodCopies::of(state.path());
        copies.keep([(OsStr::new("a.toml"), "1")].into_iter(), &all_but(&["a.toml"])).unwrap();
        let path = |name: &str| copies.folder().join(name);
        std::os::unix::fs::symlink(path("a.toml"), path("link.toml")).unwrap();
        fs::create_dir(path("folder.toml")).unwrap();
        fs::write(path("large.toml"), "x".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
        fs::write(path("open.toml"), "1").unwrap();
        fs::set_permissions(path("open.toml"), fs::Permissions::from_mode(0o666)).unwrap();
        let read = |name: &str| copies.read(OsStr::new(name)).ok().flatten();
        for name in ["link.toml", "folder.toml", "large.toml", "open.toml", "none.toml"] {
            assert_eq!(read(name), None, "{name}");
        }
        assert!(read("a.toml").is_some());
        assert!(
            copies.read(OsStr::new("link.toml")).is_err() && copies.read(OsStr::new("none.toml")).is_ok()
        );
        fs::set_permissions(copies.folder(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(read("a.toml"), None);
    }
}

//! The folder of `include`: one file for each site, which comes and goes by one `rename` or `link`.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the names of that folder. Never: leaves half a file
//! where a server reads sites, or writes over a file.
//!
//! `NAME.toml` has the site NAME; `NAME.toml.disabled` is no file of sites. A name that begins with a dot is a file on
//! its way in, or out.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use config::SITE_FILE_SUFFIX;
use sys::absence::is_absence;

use super::turn;
use crate::fault::Fault;

/// What the name of a file ends with that is not read.
const DISABLED: &str = ".disabled";

/// The folder, which no other such command changes at the same time.
#[derive(Debug)]
pub struct SiteFolder {
    path: PathBuf,
    /// Locked until it is closed.
    folder: File,
}

/// What the folder has of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A file that is read.
    Enabled,
    /// A file that is not read.
    Disabled,
}

/// A change that can be taken back until it is kept.
#[derive(Debug)]
#[must_use = "a change is kept, or taken back"]
pub struct FolderChange<'f> {
    folder: &'f SiteFolder,
    from: Option<PathBuf>,
    to: PathBuf,
    /// Whether the file is removed once the change is kept.
    removes: bool,
}

impl SiteFolder {
    /// Opens a folder, and waits for its lock.
    pub fn open(path: PathBuf) -> Result<Self, Fault> {
        let folder = turn::wait(&path)?;
        Ok(Self { path, folder })
    }

    /// The file of a site that is read.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{SITE_FILE_SUFFIX}"))
    }

    fn disabled(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{SITE_FILE_SUFFIX}{DISABLED}"))
    }

    fn hidden(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}{SITE_FILE_SUFFIX}"))
    }

    /// What there is of a site.
    pub fn state(&self, name: &str) -> Option<State> {
        // What cannot be looked at may be there.
        let exists = |path: PathBuf| !path.symlink_metadata().is_err_and(|error| is_absence(&error));
        match (exists(self.file(name)), exists(self.disabled(name))) {
            (true, _) => Some(State::Enabled),
            (false, true) => Some(State::Disabled),
            (false, false) => None,
        }
    }

    /// Every site, by its file.
    pub fn names(&self) -> Result<Vec<(String, State)>, Fault> {
        let fault = || Fault::io(self.path.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fault())? {
            let Ok(name) = entry.map_err(fault())?.file_name().into_string() else { continue };
            let (name, state) = match name.strip_suffix(DISABLED) {
                Some(name) => (name, State::Disabled),
                None => (name.as_str(), State::Enabled),
            };
            let name = name.strip_suffix(SITE_FILE_SUFFIX).filter(|name| !name.starts_with('.'));
            names.extend(name.map(|name| (name.to_owned(), state)));
        }
        names.sort();
        Ok(names)
    }

    /// Puts a new file into the folder, whole and on the disk.
    pub fn add(&self, name: &str, text: &[u8]) -> Result<FolderChange<'_>, Fault> {
        let (hidden, to) = (self.hidden(name), self.file(name));
        let put = || -> io::Result<()> {
            // What a command that was killed has left.
            remove(&hidden)?;
            let mut file = File::create_new(&hidden)?;
            file.write_all(text)?;
            file.sync_all()?;
            // Unlike `rename`, refuses if a file is there.
            fs::hard_link(&hidden, &to)?;
            remove(&hidden)?;
            self.folder.sync_all()
        };
        put().map_err(Fault::io(to.display()))?;
        Ok(FolderChange { folder: self, from: None, to, removes: false })
    }

    /// Takes the file of a site out of the folder.
    pub fn remove(&self, name: &str) -> Result<FolderChange<'_>, Fault> {
        let from =
            if self.state(name) == Some(State::Disabled) { self.disabled(name) } else { self.file(name) };
        self.rename(from, self.hidden(name), true)
    }

    /// Has the file of a site be read no more, or again.
    pub fn set(&self, name: &str, state: State) -> Result<FolderChange<'_>, Fault> {
        match state {
            State::Enabled => self.rename(self.disabled(name), self.file(name), false),
            State::Disabled => self.rename(self.file(name), self.disabled(name), false),
        }
    }

    fn rename(&self, from: PathBuf, to: PathBuf, removes: bool) -> Result<FolderChange<'_>, Fault> {
        self.replace(&from, &to)?;
        Ok(FolderChange { folder: self, from: Some(from), to, removes })
    }

    fn replace(&self, from: &Path, to: &Path) -> Result<(), Fault> {
        let renamed = fs::rename(from, to).and_then(|()| self.folder.sync_all());
        renamed.map_err(Fault::io(format!("{} to {}", from.display(), to.display())))
    }
}

impl FolderChange<'_> {
    /// The change holds.
    pub fn keep(self) -> Result<(), Fault> {
        match self.removes {
            true => remove(&self.to).map_err(Fault::io(self.to.display())),
            false => Ok(()),
        }
    }

    /// All is as it was.
    pub fn take_back(self) -> Result<(), Fault> {
        match &self.from {
            Some(from) => self.folder.replace(&self.to, from),
            None => {
                let removed = remove(&self.to).and_then(|()| self.folder.folder.sync_all());
                removed.map_err(Fault::io(self.to.display()))
            }
        }
    }
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, SiteFolder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = SiteFolder::open(dir.path().to_owned()).unwrap();
        (dir, folder)
    }

    #[test]
    fn a_change_is_kept_or_taken_back() {
        let (dir, folder) = folder();
        folder.add("a", b"one").unwrap().keep().unwrap();
        assert_eq!(fs::read(dir.path().join("a.toml")).unwrap(), b"one");
        folder.add("a", b"two").unwrap_err();
        assert_eq!(fs::read(dir.path().join("a.toml")).unwrap(), b"one");
        folder.add("b", b"").unwrap().take_back().unwrap();
        folder.remove("a").unwrap().take_back().unwrap();
        folder.set("a", State::Disabled).unwrap().keep().unwrap();
        assert_eq!(folder.names().unwrap(), [("a".to_owned(), State::Disabled)]);
        folder.set("a", State::Enabled).unwrap().take_back().unwrap();
        assert_eq!(folder.state("a"), Some(State::Disabled));
        folder.remove("a").unwrap().keep().unwrap();
        assert_eq!((folder.state("a"), fs::read_dir(dir.path()).unwrap().count()), (None, 0));
    }

    #[test]
    fn what_a_killed_command_has_left_is_in_nobodys_way() {
        let (dir, folder) = folder();
        fs::write(dir.path().join(".a.toml"), "half").unwrap();
        assert_eq!(folder.names().unwrap(), []);
        folder.add("a", b"whole").unwrap().keep().unwrap();
        assert_eq!(fs::read(folder.file("a")).unwrap(), b"whole");
        folder.remove("a").unwrap().keep().unwrap();
    }
}

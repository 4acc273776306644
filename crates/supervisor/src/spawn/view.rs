//! The files and ports that a process sees and may reach, on the way to its jail.
//!
//! Runs in: the launcher, as root. Sees: directories that the operator named, or that were opened already. Never: adds
//! more than was asked for.

use std::os::fd::OwnedFd;
use std::path::Path;

use jail::{Access, Bind, Mode, Reach};
use rustix::fs::{FileType, Stat};

use crate::directories;
use crate::error::{Error, at};

/// The files and ports that a process sees and may reach, on the way to its jail.
#[derive(Default)]
pub(crate) struct View {
    /// Whether it gets a root of its own, in which what it sees has to be put.
    pub(crate) jailed: bool,
    /// The mounts in that root.
    pub(crate) binds: Vec<Bind>,
    /// The files and ports that Landlock lets it reach.
    pub(crate) reach: Reach,
}

impl View {
    /// Lets it reach `path`, which appears at the same place in its root if it has one.
    pub(crate) fn add(&mut self, path: &Path, access: Access, mode: Mode) -> Result<(), Error> {
        let opened = directories::existing(path)?;
        let found = rustix::fs::fstat(&opened).map_err(at("examine", path))?;
        self.add_opened(path, (opened, is_folder(&found)), access, mode)
    }

    /// Lets it write in a folder of its own, which appears as `at` in its root if it has one.
    pub(crate) fn add_kept(&mut self, at_path: &str, folder: OwnedFd) -> Result<(), Error> {
        if self.jailed {
            let tree = jail::view(&folder, Mode::Write).map_err(at("make a view of", Path::new(at_path)))?;
            self.binds.push(Bind { at: at_path.into(), tree, directory: true });
        }
        self.reach.paths.push((folder, Access::Write));
        Ok(())
    }

    /// The same for what is open already, and is a folder or is none.
    pub(crate) fn add_opened(
        &mut self,
        path: &Path,
        (opened, directory): (OwnedFd, bool),
        access: Access,
        mode: Mode,
    ) -> Result<(), Error> {
        if self.jailed {
            let tree = jail::view(&opened, mode).map_err(at("make a view of", path))?;
            self.binds.push(Bind { at: config::lexical(path), tree, directory });
        }
        self.reach.paths.push((opened, access));
        Ok(())
    }
}

pub(crate) fn is_folder(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_dir()
}

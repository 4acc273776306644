//! Core files of services that may write them: in memory while the service lives, then copied to where root alone can
//! read them.
//!
//! Runs in: the launcher, as root. Sees: how full a service's folder is. Never: opens, lists or follows what a service
//! made: that is for [`crate::spawn::core_copy`], in a jail.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1: the run
//! directory of a service is the only one that it can write; after an unclean exit
//! the launcher takes the core file over.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jail::Identity;

use crate::directories;
use crate::error::{Error, at, during};

/// Where a service finds its folder; it starts there, as that is where the kernel writes a core file.
pub const AT: &str = "/cores";
/// LIMIT: what is kept of one service; a crash loop does not fill the disk with the same core.
const KEPT_MAX: usize = 4;
/// LIMIT: what is in the folder beside a core file of the largest size.
const SLACK_BYTES: u64 = 64 << 10;
/// LIMIT: files in the folder, itself among them.
const ENTRIES_MAX: u32 = 16;

/// The core files that are kept.
#[derive(Debug)]
pub struct CoreDumps {
    kept: PathBuf,
}

impl CoreDumps {
    /// Kept below `state`, which is the launcher's own.
    pub fn below(state: &Path) -> Self {
        Self { kept: state.join("cores") }
    }

    /// Makes the file into which a core file is copied, in the place of one that was never whole.
    pub fn begin(&self, name: &str) -> Result<File, Error> {
        directories::own_directory(&self.kept, 0o700)?;
        self.give_up(name)?;
        let path = self.unfinished(name);
        File::options().write(true).create_new(true).mode(0o400).open(&path).map_err(at("make", &path))
    }

    /// The copy is whole: it gets its name, and the oldest goes if there are too many. Returns where it is.
    pub fn finish(&self, name: &str) -> Result<PathBuf, Error> {
        let prefix = prefix(name);
        let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix(&*prefix)?.parse::<u32>().ok();
        let entries = fs::read_dir(&self.kept).map_err(at("read", &self.kept))?;
        let mut kept: Vec<u32> = entries.flatten().filter_map(|entry| number(&entry.file_name())).collect();
        kept.sort_unstable();
        for old in kept.iter().rev().skip(KEPT_MAX - 1) {
            let path = self.kept.join(format!("{prefix}{old}"));
            // A folder is what an earlier version kept.
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(at("remove", &path))?;
        }
        let path = self.kept.join(format!("{prefix}{}", kept.last().map_or(1, |last| last + 1)));
        fs::rename(self.unfinished(name), &path).map_err(at("rename", &path))?;
        Ok(path)
    }

    /// Removes a copy that is not whole.
    pub fn give_up(&self, name: &str) -> Result<(), Error> {
        let path = self.unfinished(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    fn unfinished(&self, name: &str) -> PathBuf {
        self.kept.join(format!("{}new", prefix(name)))
    }
}

/// Makes the folder of a new process of a service: a file system of its own in memory, so that its size is bounded, and
/// what is not kept goes with the process.
pub fn folder(identity: Identity, core_max: u64) -> Result<OwnedFd, Error> {
    jail::memory(core_max.saturating_add(SLACK_BYTES), ENTRIES_MAX, identity)
        .map_err(during("make a folder in memory"))
}

/// How the names of what is kept of a service begin.
fn prefix(name: &str) -> String {
    format!("{}-", name.replace('/', "."))
}

/// Whether nothing was made in a folder.
pub fn is_empty(folder: &OwnedFd) -> bool {
    // The folder itself is one of its files.
    rustix::fs::fstatfs(folder).is_ok_and(|stat| stat.f_files.saturating_sub(stat.f_ffree) <= 1)
}

/// What was made in a folder, to be read by who may.
pub fn opened(folder: &OwnedFd) -> Result<OwnedFd, Error> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::RDONLY;
    let opened = rustix::fs::openat(folder, ".", flags, rustix::fs::Mode::empty());
    opened.map_err(during("open a folder in memory"))
}

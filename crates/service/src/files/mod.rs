//! Files that a service keeps, in the folder of its own that `files = true` gives it.
//!
//! Runs in: a service's worker, and threads of it that wait for the disk. Sees: names that the service chooses. Never:
//! uses a client's name for a file; shows a file that is not whole.

mod new_file;
mod upload;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::{Context, Error};
pub use new_file::NewFile;
pub use upload::{SaveError, Saved};

/// Where a service's files are, in its environment; the launcher says it.
const VARIABLE: &str = "BULKHEAD_FILES";

/// The prefix of files that are not whole yet.
const PARTIAL: &str = ".part-";

/// LIMIT: how long a partial file may stay as it is. A process that was killed while it wrote has left the file; a
/// client that is slower than this is given up.
const PARTIAL_MAX: Duration = Duration::from_secs(3600);

/// LIMIT: most file systems take names of 255 bytes.
const NAME_MAX: usize = 200;

/// A folder of files of a service's own; a clone is the same folder.
#[derive(Clone, Debug)]
pub struct Files(Rc<PathBuf>);

impl Files {
    /// The files in `folder`, for tests of a service. Partial files of a process that was killed while it wrote
    /// are removed.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn in_folder(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let is_partial = entry.file_name().to_string_lossy().starts_with(PARTIAL);
            if is_partial && is_stale(&entry) {
                // Another process of this service may have done it.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Self(Rc::new(folder)))
    }

    /// The path of the file `name`, to be opened; `None` if no file can be called so.
    ///
    /// A name has letters, digits, `-`, `_` and `.`, begins with none of the last, and is at most 200 long: so it may
    /// come from a client.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        is_name(name).then(|| self.0.join(name))
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// There is none with this name, or the disk says so.
    pub async fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.path(name).ok_or(io::ErrorKind::NotFound)?;
        waiting(move || fs::read(path)).await
    }

    /// Removes a file.
    ///
    /// # Errors
    /// There is none with this name, or the disk says so.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name).ok_or(io::ErrorKind::NotFound)?;
        waiting(move || fs::remove_file(path)).await
    }

    fn folder(&self) -> &Path {
        &self.0
    }
}

impl Context {
    /// The service's own files, which `files = true` in its configuration gives it.
    ///
    /// # Errors
    /// It has none, in words for the operator.
    pub fn files(&self) -> Result<Files, Error> {
        let folder = std::env::var_os(VARIABLE).ok_or(
            "this service keeps files, and has no folder for them: write `files = true` in its \
                [[site.service]]",
        )?;
        let files = Files::in_folder(PathBuf::from(&folder));
        files.map_err(|error| format!("cannot read the folder {}: {error}", folder.display()).into())
    }
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

fn is_stale(entry: &fs::DirEntry) -> bool {
    let changed = entry.metadata().and_then(|found| found.modified());
    changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > PARTIAL_MAX))
}

/// Does what waits for the disk in a thread of its own: requests go on meanwhile.
async fn waiting<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

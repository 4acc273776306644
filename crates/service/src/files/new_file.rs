//! A file that is being written, and is there for nobody until it is whole.
//!
//! Runs in: a service's worker, and threads of it that wait for the disk. Sees: what the service writes. Never: leaves
//! a partial file behind, unless the process is killed.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Files, PARTIAL, waiting};

/// LIMIT: bytes that are collected before they are written: each time, a thread is woken.
const COLLECTED_MAX: usize = 256 * 1024;

/// A file that is being written; it is removed when dropped, unless it was finished.
#[derive(Debug)]
pub struct NewFile {
    files: Files,
    file: Arc<File>,
    partial: Partial,
    collected: Vec<u8>,
    bytes: u64,
}

/// Removes a file that is not whole.
#[derive(Debug)]
struct Partial(Option<PathBuf>);

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Files {
    /// Begins a file, whose name is said when it is finished.
    ///
    /// # Errors
    /// The disk says so, or there are no random bytes.
    pub async fn create(&self) -> io::Result<NewFile> {
        let path = self.folder().join(format!("{PARTIAL}{}", random_name()?));
        let partial = Partial(Some(path.clone()));
        let open = move || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = Arc::new(waiting(open).await?);
        Ok(NewFile { files: self.clone(), file, partial, collected: Vec::new(), bytes: 0 })
    }
}

impl NewFile {
    /// Writes a piece.
    ///
    /// # Errors
    /// The disk says so; it may be full.
    pub async fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.collected.extend_from_slice(piece);
        self.bytes += piece.len() as u64;
        if self.collected.len() < COLLECTED_MAX { Ok(()) } else { self.flush().await }
    }

    /// How many bytes were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has the file on the disk, whole, and calls it `name`, in place of one that was called so.
    ///
    /// # Errors
    /// No file can be called so, or the disk says so; then it is removed.
    pub async fn finish(mut self, name: &str) -> io::Result<()> {
        let path = self.files.path(name).ok_or(io::ErrorKind::InvalidFilename)?;
        self.flush().await?;
        let (file, folder) = (self.file.clone(), self.files.folder().to_owned());
        let Some(partial) = self.partial.0.clone() else { return Ok(()) };
        waiting(move || {
            file.sync_all()?;
            fs::rename(partial, path)?;
            File::open(folder)?.sync_all()
        })
        .await?;
        self.partial.0 = None;
        Ok(())
    }

    /// The same with a random name, which it gives.
    ///
    /// # Errors
    /// As there.
    pub async fn finish_somehow(self) -> io::Result<String> {
        let name = random_name()?;
        self.finish(&name).await?;
        Ok(name)
    }

    async fn flush(&mut self) -> io::Result<()> {
        let (file, bytes) = (self.file.clone(), std::mem::take(&mut self.collected));
        waiting(move || (&*file).write_all(&bytes)).await
    }
}

/// A name that nobody guesses, and nobody has.
fn random_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let mut name = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Formatting into a String does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    Ok(name)
}

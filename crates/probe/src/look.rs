//! Looking around: files, folders and descriptors, as far as the process can.
//!
//! Runs in: the probe. Sees: names and types. Never: reads what a file holds, beyond one byte; never walks further
//! than its limits.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat};
use sys::attempt::odd;

/// LIMIT: a jail's own root has some dozen entries; a whole machine is not to be walked in full.
const ENTRIES_MAX: usize = 30_000;
/// LIMIT: as many descriptors as any limit on this kind of machine allows to look at in some milliseconds.
const DESCRIPTORS_MAX: i32 = 65_536;

/// The numbers of the open descriptors.
pub(crate) fn open_descriptors() -> Vec<i32> {
    (0..DESCRIPTORS_MAX).filter(|&number| odd::is_open(number)).collect()
}

/// The descriptors that a running process of ours may hold besides 0 to 4: Unix sockets (channels, relayed
/// connections), pipes, and those of a runtime itself (epoll, eventfd, timers). For the hints of a process that probes
/// itself.
pub fn given_descriptors() -> Vec<i32> {
    let given = |number: &i32| {
        let Some(copy) = odd::duplicate(*number) else { return false };
        match fstat(&copy).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Socket) => {
                matches!(rustix::net::sockopt::socket_domain(&copy), Ok(rustix::net::AddressFamily::UNIX))
            }
            Ok(FileType::Fifo | FileType::Unknown) => true,
            _ => false,
        }
    };
    (0..=4).chain(open_descriptors().into_iter().filter(|number| *number > 4).filter(given)).collect()
}

/// The open descriptors of this type, duplicated.
pub(crate) fn descriptors_of(wanted: FileType) -> Vec<(i32, OwnedFd)> {
    open_descriptors()
        .into_iter()
        .filter_map(|number| Some((number, odd::duplicate(number)?)))
        .filter(|(_, copy)| match fstat(copy) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode) == wanted,
            // Where a filter refuses that question, it may leave another one for sockets.
            Err(_) => wanted == FileType::Socket && rustix::net::sockopt::socket_type(copy).is_ok(),
        })
        .collect()
}

/// Describes a descriptor, for people.
pub(crate) fn describe(number: i32) -> String {
    if let Ok(link) = fs::read_link(format!("/proc/self/fd/{number}")) {
        return format!("{number} -> {}", link.display());
    }
    let kind = odd::duplicate(number).and_then(|copy| fstat(copy).ok());
    let kind = kind.map(|stat| format!("{:?}", FileType::from_raw_mode(stat.st_mode)));
    format!("{number} ({})", kind.unwrap_or_else(|| "unknown".into()))
}

/// Every path below `/`, as far as it can be seen, with what it is; the kernel's own file systems are left out.
pub(crate) fn walk(mut found: impl FnMut(&Path, &fs::Metadata)) {
    let mut folders = VecDeque::from([PathBuf::from("/")]);
    let mut entries = 0;
    // Breadth first: what matters lies near the top.
    while let Some(folder) = folders.pop_front() {
        let Ok(listed) = fs::read_dir(&folder) else { continue };
        for entry in listed.flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return;
            }
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            found(&path, &metadata);
            if metadata.is_dir() && path != Path::new("/proc") && path != Path::new("/sys") {
                folders.push_back(path);
            }
        }
    }
}

/// The folders in which a process might be able to write.
pub(crate) fn folders() -> Vec<PathBuf> {
    ["/tmp", "/dev/shm", "/run", "/var/tmp", "/", "."].iter().map(PathBuf::from).collect()
}

/// A folder of the probe's own, which is removed again with what it holds.
#[derive(Debug)]
pub(crate) struct Own(pub PathBuf);

impl Own {
    /// Makes one wherever that is possible.
    pub(crate) fn new() -> std::io::Result<Self> {
        let name = format!("bulkhead-probe-{}", std::process::id());
        let mut last = std::io::ErrorKind::NotFound.into();
        for folder in folders() {
            let path = folder.join(&name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // A child may end without removing its own.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(Self(path)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A new, empty file in it.
    pub(crate) fn file(&self, name: &str) -> std::io::Result<(PathBuf, fs::File)> {
        let path = self.0.join(name);
        let mut how = fs::OpenOptions::new();
        let file = how.create(true).truncate(true).read(true).write(true).mode(0o600).open(&path)?;
        Ok((path, file))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a file without reading or changing it; never waits, as for a FIFO.
pub(crate) fn open(path: impl AsRef<Path>, write: bool) -> std::io::Result<fs::File> {
    let non_blocking = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut how = fs::OpenOptions::new();
    how.read(!write).write(write).custom_flags(non_blocking.bits().cast_signed()).open(path)
}

/// Device and inode of a path, which tell it from every other.
pub(crate) fn identity(path: impl AsRef<Path>) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

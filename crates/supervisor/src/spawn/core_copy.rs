//! `bulkheadd keep-core BYTES`: copies the core file of a service from descriptor 0, its folder in memory, to 1, a
//! file.
//!
//! Runs in: a process of its own, started by the launcher, under the uid of the service and in a jail in which there is
//! nothing but these two. Sees: a folder in which the service could make what it liked; whatever is copied is for root
//! to read. Never: follows a link, opens what is no regular file, copies more than the limit.
//!
//! Its exit status is the kernel's number of what went wrong; [`NOTHING`] if there is no core file.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat};
use rustix::io::Errno;

/// The exit status for a folder without a core file; no error has this number.
pub const NOTHING: u8 = 255;
/// LIMIT: names that are looked at; the folder's file system has room for fewer.
const NAMES_MAX: usize = 64;
const PIECE_BYTES: usize = 128 << 10;

/// The whole of the process.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let bytes_max = arguments.next().and_then(|bytes| bytes.to_str()?.parse().ok());
    let Some(bytes_max) = bytes_max.filter(|_| arguments.next().is_none()) else {
        eprintln!("usage: bulkheadd keep-core BYTES   (only bulkheadd itself starts this)");
        return ExitCode::from(2);
    };
    match keep(std::io::stdin().as_fd(), std::io::stdout().as_fd(), bytes_max) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOTHING),
        Err(error) => ExitCode::from(u8::try_from(error.raw_os_error()).unwrap_or(1)),
    }
}

/// Copies the newest regular file that can be read; whether there is one.
fn keep(folder: BorrowedFd<'_>, into: BorrowedFd<'_>, bytes_max: u64) -> Result<bool, Errno> {
    let mut found = Vec::new();
    let mut buffer = Vec::with_capacity(8192);
    let mut names = RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = names.next().filter(|_| found.len() < NAMES_MAX) {
        let name = entry?.file_name().to_owned();
        let stat = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_regular(&stat) && stat.st_size > 0 {
            // When it was changed is the kernel's word; when it was written, the service's.
            found.push(((stat.st_ctime, stat.st_ctime_nsec), name));
        }
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    for (_, name) in found {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let Ok(file) = rustix::fs::openat2(folder, &name, flags, Mode::empty(), resolve) else {
            continue;
        };
        let stat = rustix::fs::fstat(&file)?;
        if is_regular(&stat) {
            copy(&file, into, bytes_max.min(stat.st_size as u64))?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

/// Copies so many bytes, and leaves out what is empty.
fn copy(from: &OwnedFd, into: BorrowedFd<'_>, length: u64) -> Result<(), Errno> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < length {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is nothing but emptiness up to the end.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(at))?.min(length);
        while at < end {
            let most = usize::try_from(end - at).map_or(piece.len(), |left| left.min(piece.len()));
            let got = rustix::io::pread(from, &mut piece[..most], at)?;
            if got == 0 {
                return rustix::fs::ftruncate(into, at);
            }
            let mut written = 0;
            while written < got {
                written += rustix::io::pwrite(into, &piece[written..got], at + written as u64)?;
            }
            at += got as u64;
        }
    }
    rustix::fs::ftruncate(into, length)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
    use std::path::{Path, PathBuf};

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("from")).unwrap();
            Self(folder)
        }

        fn from(&self) -> PathBuf {
            self.0.path().join("from")
        }

        fn kept(&self, bytes_max: u64) -> (Result<bool, Errno>, PathBuf) {
            let into = self.0.path().join("into");
            let file = File::create(&into).unwrap();
            (keep(File::open(self.from()).unwrap().as_fd(), file.as_fd(), bytes_max), into)
        }
    }

    #[test]
    fn the_newest_file_is_copied_with_its_holes() {
        let folder = Folder::new();
        fs::write(folder.from().join("older"), "older").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut core = File::create(folder.from().join("core")).unwrap();
        core.write_all(b"first").unwrap();
        core.write_all_at(b"last", 8 << 20).unwrap();
        core.set_len(9 << 20).unwrap();
        let (kept, into) = folder.kept(u64::MAX);
        assert_eq!(kept, Ok(true));
        assert_eq!(fs::read(&into).unwrap(), fs::read(folder.from().join("core")).unwrap());
        assert!(fs::metadata(&into).unwrap().blocks() * 512 < 1 << 20, "holes take no room");
        // No more than the limit, be it in the middle of a hole.
        let (kept, into) = folder.kept(6 << 20);
        assert_eq!((kept, fs::metadata(into).unwrap().len()), (Ok(true), 6 << 20));
        let (kept, into) = folder.kept(3);
        assert_eq!((kept, fs::read(into).unwrap()), (Ok(true), b"fir".to_vec()));
    }

    #[test]
    fn what_is_no_file_is_left_alone() {
        let folder = Folder::new();
        fs::write(folder.0.path().join("secret"), "secret").unwrap();
        symlink(Path::new("../secret"), folder.from().join("core")).unwrap();
        fs::create_dir(folder.from().join("core.1")).unwrap();
        File::create(folder.from().join("empty")).unwrap();
        let fifo = folder.from().join("core.2");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let (kept, into) = folder.kept(u64::MAX);
        assert_eq!((kept, fs::metadata(into).unwrap().len()), (Ok(false), 0));
    }
}

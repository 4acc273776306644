//! Opening what lies below a folder, which is how every file of a site is opened.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: paths, and what lies below the folder. Must never:
//! open what is not below the folder.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// An open file or folder.
pub(super) struct OpenedPath {
    pub(super) fd: OwnedFd,
    /// Whether no link was followed.
    pub(super) is_straight: bool,
    /// Its path in the folder that a link has led into, out of the one that has the link.
    pub(super) linked: Option<Vec<u8>>,
}

/// O_NONBLOCK: a FIFO must not stop the worker.
pub(super) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens what is at a path below a folder, if the way does not leave the folder.
pub(super) fn open_beneath(
    folder: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    // LIMIT: openat2 says EAGAIN when a rename ran beside it and it could not be sure; 8 times is plenty.
    for _ in 0..8 {
        let resolve = ResolveFlags::BENEATH | resolve;
        match rustix::fs::openat2(folder, or_itself(path), flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Where the link leads at a path below a folder, if it is one.
pub(super) fn link(folder: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = open_beneath(folder, path, flags, ResolveFlags::NO_SYMLINKS)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    let read = || rustix::fs::readlinkat(&fd, "", Vec::new()).map(std::ffi::CString::into_bytes);
    if kind == FileType::Symlink { read().map(Some) } else { Ok(None) }
}

/// A path, or `.` in place of none.
pub(super) fn or_itself(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

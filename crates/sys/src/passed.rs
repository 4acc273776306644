//! Descriptors that a launcher leaves to the program that takes its place by `exec`.
//!
//! Runs in: the launcher, before it replaces its program and after. Sees: numbers of descriptors. Never: closes, or
//! takes for one that was left, what this process has opened itself: all of that is closed by `exec`, and so marked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::FdFlags;

use crate::inherit::LOG;
use crate::process::{Program, execute};

/// Bytes in memory that nobody can change any more, to be read from the beginning.
///
/// # Errors
/// There is no memory, or no descriptor left.
pub fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create(c"record", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut left = bytes;
    while !left.is_empty() {
        let written = rustix::io::write(&memory, left)?;
        left = &left[written..];
    }
    rustix::fs::seek(&memory, rustix::fs::SeekFrom::Start(0))?;
    rustix::fs::fcntl_add_seals(
        &memory,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(memory)
}

/// Whether nobody can change these bytes any more.
///
/// # Errors
/// This is no memory that could be sealed.
pub fn is_sealed(memory: impl AsFd) -> io::Result<bool> {
    let wanted = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    Ok(rustix::fs::fcntl_get_seals(memory)?.contains(wanted))
}

/// Leaves these descriptors open over `exec`, or no longer.
///
/// # Errors
/// One of them is not open.
pub fn leave(descriptors: &[BorrowedFd<'_>], open: bool) -> io::Result<()> {
    let flags = if open { FdFlags::empty() } else { FdFlags::CLOEXEC };
    descriptors.iter().try_for_each(|descriptor| Ok(rustix::io::fcntl_setfd(descriptor, flags)?))
}

/// Puts `program` in the place of this one, in the same process, with these descriptors and those below 3. Returns if
/// that has failed, and why: nothing has changed then.
pub fn become_program(program: &Program, descriptors: &[BorrowedFd<'_>]) -> io::Error {
    let failed = match leave(descriptors, true) {
        Ok(()) => match execute(program) {
            Ok(never) => match never {},
            Err(error) => error,
        },
        Err(error) => error,
    };
    let _ = leave(descriptors, false);
    failed
}

/// Another descriptor of what was left at `number`.
///
/// # Errors
/// Nothing was left there.
pub fn copy(number: RawFd) -> io::Result<OwnedFd> {
    if number <= LOG {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the borrow lasts for this function. If nothing is open at `number`, both uses of it answer EBADF; what
    // this process has opened itself is not copied, as the next lines see, and only `close_rest` closes what was left.
    let left = unsafe { BorrowedFd::borrow_raw(number) };
    if rustix::io::fcntl_getfd(left)?.contains(FdFlags::CLOEXEC) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let copied = left.try_clone_to_owned()?;
    Ok(crate::process::out_of_the_way(copied))
}

/// Closes all that was left, of which there are copies now.
///
/// # Errors
/// The list of descriptors cannot be read.
pub fn close_rest() -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for number in numbers.into_iter().filter(|number| *number > LOG) {
        // SAFETY: as in `copy`: one that is not open answers EBADF.
        let found = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
        if found.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
            // SAFETY: everything that this process owns is marked to be closed by `exec`, so nothing in it owns this
            // one.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;

    #[test]
    fn what_is_sealed_stays() {
        let memory = sealed(b"record").unwrap();
        assert!(is_sealed(&memory).unwrap());
        let mut file = File::from(memory);
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, "record");
        assert!(file.write_all(b"more").is_err() && file.set_len(0).is_err());
    }

    #[test]
    fn what_was_not_left_is_not_copied() {
        let null = OwnedFd::from(File::open("/dev/null").unwrap());
        let null = rustix::io::fcntl_dupfd_cloexec(null, 500).unwrap();
        assert!(copy(null.as_raw_fd()).is_err());
        leave(&[null.as_fd()], true).unwrap();
        let copied = copy(null.as_raw_fd()).unwrap();
        assert!(rustix::io::fcntl_getfd(&copied).unwrap().contains(FdFlags::CLOEXEC));
        leave(&[null.as_fd()], false).unwrap();
        assert!(
            copy(null.as_raw_fd()).is_err()
                && copy(2).is_err()
                && copy(1 << 20).is_err()
                && copy(-1).is_err()
        );
    }
}

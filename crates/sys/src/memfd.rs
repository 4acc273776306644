//! Files in memory, without a name, that outlive the process which writes to them.
//!
//! Runs in: the launcher, which makes them and hands them on. Sees: no byte of them. Never: makes one that can grow,
//! shrink or be executed.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, memfd_create};
use rustix::io::Errno;

/// Zeros, so many bytes; each page takes memory from the first time on that something writes to it.
///
/// # Errors
/// There is no memory, or no descriptor left.
pub fn of_size(name: &CStr, bytes: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know it. No jail lets a role execute anything in any case.
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        made => made?,
    };
    rustix::fs::ftruncate(&memory, bytes)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(memory)
}

/// The same file, to be read alone, from its beginning: the place of whoever else reads or writes it does not move.
///
/// # Errors
/// No descriptor is left, or `/proc` is not there.
pub fn to_be_read(memory: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    #[test]
    fn it_keeps_its_size_and_is_written_to_by_one() {
        let memory = of_size(c"test", 8).unwrap();
        let mut reading = File::from(to_be_read(&memory).unwrap());
        let mut file = File::from(memory);
        file.write_all(b"12345678").unwrap();
        assert!(file.write_all(b"9").is_err() && file.set_len(0).is_err() && file.set_len(9).is_err());
        let mut read = String::new();
        reading.read_to_string(&mut read).unwrap();
        assert_eq!(read, "12345678");
        assert!(reading.write_all(b"9").is_err());
    }
}

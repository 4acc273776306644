//! The process's own memory: pages that are writable and executable, and what lies in it.
//!
//! Runs in: the probe. Never: touches memory by address itself; the kernel copies it.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use super::{Errno, checked};

/// One page of x86-64.
pub const PAGE: usize = 4096;

/// Maps a page with these protections, then gives it those, and takes it away again.
fn map(first: i32, then: Option<i32>, file: Option<i32>) -> Result<(), Errno> {
    let flags = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing else uses.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, first, flags, file.unwrap_or(-1), 0) };
    if address == libc::MAP_FAILED {
        return checked(-1).map(drop);
    }
    let result = then.map_or(Ok(()), |then| {
        // SAFETY: the mapping made above, whole; no reference to it exists.
        checked(unsafe { libc::mprotect(address, PAGE, then) }.into()).map(drop)
    });
    // SAFETY: the mapping made above, whole; no reference to it exists.
    unsafe { libc::munmap(address, PAGE) };
    result
}

/// Memory that is writable and executable at the same time.
///
/// # Errors
/// What the kernel said; so for the other three.
pub fn writable_and_executable() -> Result<(), Errno> {
    map(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, None, None)
}

/// Memory that is written first and made executable then.
pub fn executable_later() -> Result<(), Errno> {
    map(libc::PROT_READ | libc::PROT_WRITE, Some(libc::PROT_READ | libc::PROT_EXEC), None)
}

/// Memory that holds nothing, to be executed.
pub fn executable() -> Result<(), Errno> {
    map(libc::PROT_READ | libc::PROT_EXEC, None, None)
}

/// A file (a memfd, say) mapped to be executed, or to be written to.
pub fn file_mapped(file: &impl AsRawFd, executable: bool) -> Result<(), Errno> {
    let more = if executable { libc::PROT_EXEC } else { libc::PROT_WRITE };
    map(libc::PROT_READ | more, None, Some(file.as_raw_fd()))
}

/// Keeps `memory` from being paged out; it may be again when the call has returned.
///
/// # Errors
/// What the kernel said.
pub fn lock(memory: &[u8]) -> Result<(), Errno> {
    // SAFETY: locking and unlocking pages changes nothing that a reader or writer of them could notice.
    unsafe {
        let locked = checked(libc::mlock(memory.as_ptr().cast(), memory.len()).into());
        libc::munlock(memory.as_ptr().cast(), memory.len());
        locked.map(drop)
    }
}

/// Another process's memory at `address`, by `process_vm_readv`.
pub fn of_process(pid: i32, address: usize, bytes: &mut [u8]) -> Result<usize, Errno> {
    let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let there = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`; the other address is the other process's.
    // If `pid` is this process, it only reads there.
    let got = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    checked(got as i64).map(|got| got as usize)
}

/// Tries to write a byte to the address 0 of another process, by `process_vm_writev`.
///
/// # Errors
/// Always: `EFAULT` from those that may write, since nothing is ever mapped there.
pub fn into_process(pid: i32) -> Result<usize, Errno> {
    let mut byte = [0_u8; 1];
    let here = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    let there = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: byte.len() };
    // SAFETY: the kernel reads `byte`; there is no memory at the address 0 of any process (mmap_min_addr).
    let got = unsafe { libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0) };
    checked(got as i64).map(|got| got as usize)
}

/// A reader of this process's own memory by address, which needs no `/proc`: the kernel copies it into a pipe.
#[derive(Debug)]
pub struct MemoryReader {
    from: std::io::PipeReader,
    to: std::io::PipeWriter,
}

impl MemoryReader {
    /// Makes the pipe.
    ///
    /// # Errors
    /// Those of `pipe`.
    pub fn new() -> std::io::Result<Self> {
        let (from, mut to) = std::io::pipe()?;
        to.flush()?;
        Ok(Self { from, to })
    }

    /// Reads the page that begins at `address`; false if nothing is mapped there.
    pub fn page(&mut self, address: usize, page: &mut [u8; PAGE]) -> bool {
        // SAFETY: the kernel reads at most a page at `address` on behalf of this process, and says EFAULT if it
        // may not; no reference is made. The pipe is empty, so a page fits and the call does not wait.
        let sent = unsafe { libc::write(self.to.as_raw_fd(), address as *const libc::c_void, PAGE) };
        let Ok(sent) = usize::try_from(sent) else { return false };
        page[sent..].fill(0);
        self.from.read_exact(&mut page[..sent]).is_ok() && sent > 0
    }
}

/// Addresses from which a process without `/proc` finds its memory: stack, heap, the break, code.
pub fn landmarks() -> Vec<usize> {
    let on_stack = 0_u8;
    let on_heap = Box::new(0_u8);
    // A block this large has a mapping of its own.
    let mapped = Vec::<u8>::with_capacity(1 << 20);
    // SAFETY: sbrk(0) changes nothing.
    let end = unsafe { libc::sbrk(0) } as usize;
    vec![
        &raw const on_stack as usize,
        &raw const *on_heap as usize,
        mapped.as_ptr() as usize,
        end.saturating_sub(PAGE),
        landmarks as fn() -> Vec<usize> as usize,
        // SAFETY: reads the auxiliary vector only.
        unsafe { libc::getauxval(libc::AT_RANDOM) } as usize,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_by_address() {
        let mut reader = MemoryReader::new().unwrap();
        let mut page = [0; PAGE];
        let secret = *b"a secret on the stack";
        let at = secret.as_ptr() as usize;
        let mut found = false;
        for start in [at & !(PAGE - 1), (at & !(PAGE - 1)) + PAGE] {
            if reader.page(start, &mut page) {
                found |= page.windows(8).any(|window| window == b"a secret");
            }
        }
        assert!(found);
        assert!(!reader.page(0, &mut page));
        assert!(landmarks().iter().all(|&mark| mark != 0));
    }

    #[test]
    fn pages_can_be_mapped_here() {
        assert_eq!(writable_and_executable(), Ok(()));
        assert_eq!(executable_later(), Ok(()));
    }
}

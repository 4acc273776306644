//! How the kernel backs memory that is there already.
//!
//! Runs in: every process that asks. Sees no untrusted bytes. Never: changes what memory says, or unmaps what is in
//! use.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A buffer of zeros in pages of its own, each of which takes memory from the first time on that something writes to
/// it.
///
/// For what is large and hardly ever filled. The C library's `calloc` would write to all of it: in the heap it cannot
/// know what is nought already.
#[derive(Debug)]
pub struct Pages(NonNull<[u8]>);

impl Pages {
    /// A buffer of so many bytes, but nought.
    ///
    /// # Panics
    /// There is no memory, as for every other allocation.
    pub fn zeroed(bytes: usize) -> Self {
        let (protection, flags) =
            (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::PRIVATE);
        // SAFETY: a new mapping, wherever the kernel has room, overlaps with nothing.
        let mapped = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let start = mapped.ok().and_then(|start| NonNull::new(start.cast()));
        let start = start.expect("invariant: there is memory");
        Self(NonNull::slice_from_raw_parts(start, bytes))
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is this value's alone, as long as the slice says, and the kernel has filled it with
        // zeros.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed by nobody else.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, of this length, and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), self.0.len()) };
    }
}

/// Asks for large pages behind `memory`; a kernel that has none, or may not, leaves it as it was.
///
/// A look at memory far away then misses fewer of the processor's tables of pages. What is not written yet may become
/// resident in steps of a large page (2 MiB on x86-64), so this is for what is much larger than that.
pub fn large_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let range = memory.as_mut_ptr_range();
    let page = rustix::param::page_size();
    let start = range.start.addr().next_multiple_of(page);
    let end = range.end.addr() / page * page;
    if start < end {
        // SAFETY: whole pages inside of memory that the caller owns; the advice changes neither what they hold nor what
        // may be done to them.
        let _ = unsafe {
            rustix::mm::madvise(
                range.start.with_addr(start).cast(),
                end - start,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

/// Gives the kernel back what was freed, as far as the C library can: without it, memory that was needed once stays.
///
/// It looks at all that is free, some milliseconds for 100 MiB, so this is for the end of a rush.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no precondition, and what is in use stays where it is.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_was_freed_is_given_back() {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        // Each below what the C library maps by itself, and the last one kept, so that none goes by itself.
        let mut all: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 32 << 10]).collect();
        let kept = all.pop();
        let full = resident();
        drop(all);
        give_back();
        assert!(resident() + (16 << 20) < full, "{} of {full} bytes are left", resident());
        drop(kept);
    }

    #[test]
    fn pages_take_memory_as_they_are_written() {
        let mut pages = Pages::zeroed(64 << 20);
        let resident = |pages: &Pages| {
            let own = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let start = format!("{:x}-", pages.as_ptr().addr());
            let own = own.lines().skip_while(|line| !line.starts_with(&start));
            let resident = own.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap().trim();
            resident.trim_end_matches(" kB").parse::<usize>().unwrap()
        };
        assert_eq!(resident(&pages), 0);
        let last = pages.len() - 1;
        (pages[0], pages[last]) = (1, 2);
        assert!((8..4096).contains(&resident(&pages)), "{}", resident(&pages));
        assert_eq!((pages[0], pages[1], pages[last], pages.len()), (1, 0, 2, 64 << 20));
    }

    #[test]
    fn what_is_there_stays() {
        let mut memory = vec![7_u8; 8 << 20];
        memory.reserve(8 << 20);
        large_pages(memory.spare_capacity_mut());
        large_pages::<u8>(&mut []);
        large_pages(&mut [MaybeUninit::new(1_u8); 3]);
        memory.resize(16 << 20, 9);
        assert!(memory[..8 << 20].iter().all(|byte| *byte == 7));
        assert!(memory[8 << 20..].iter().all(|byte| *byte == 9));
    }
}

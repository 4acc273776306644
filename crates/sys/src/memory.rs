//! How the kernel backs memory that is there already.
//!
//! Runs in: every process that asks. Sees no untrusted bytes. Never: changes what memory says, maps or unmaps any.

use std::mem::MaybeUninit;

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

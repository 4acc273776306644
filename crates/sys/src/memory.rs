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

#[cfg(test)]
mod tests {
    use super::*;

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

//! An allocator that counts, for tests that bound how often a thread allocates.
//!
//! Runs in: tests only. Sees no untrusted bytes. Never: is part of a server.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Without a destructor and made by the compiler: the allocator may be called at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts for each thread how often memory was asked for.
///
/// A test makes it its own with `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

impl Counting {
    /// How often this thread has asked for memory, or for more of it.
    pub fn here() -> u64 {
        COUNT.get()
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller has promised.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller has promised.
        unsafe { System.realloc(memory, layout, size) }
    }
}

//! The standard error of a child: both ends of its pipe.
//!
//! Runs in: the launcher, as root. Sees: whether the pipe is full. Never: reads a byte of what the child prints.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{SpliceFlags, splice};
use sys::process::out_of_the_way;

/// LIMIT: bytes of one look: the largest pipe there is, unless root makes one.
const SPILL_BYTES: usize = 1 << 20;

/// Both ends of a child's standard error.
#[derive(Debug)]
pub struct Stderr {
    /// Of which the logger has another descriptor.
    pub reading: OwnedFd,
    /// By which it is seen whether the child could write.
    pub writing: OwnedFd,
}

impl Stderr {
    /// The same pipe at numbers that no start of a process has to copy.
    #[must_use]
    pub fn out_of_the_way(self) -> Self {
        let Self { reading, writing } = self;
        Self { reading: out_of_the_way(reading), writing: out_of_the_way(writing) }
    }

    /// Whether who writes waits. However short the logger has made the pipe, the kernel knows.
    pub fn is_full(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.writing, PollFlags::OUT)], Some(&at_once)) == Ok(0)
    }

    /// Throws away what is in it; how many bytes.
    pub fn spill(&self, null: BorrowedFd<'_>) -> usize {
        splice(&self.reading, None, null, None, SPILL_BYTES, SpliceFlags::NONBLOCK).unwrap_or(0)
    }
}

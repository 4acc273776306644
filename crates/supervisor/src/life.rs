//! How long a slot is there for.
//!
//! Runs in: the launcher. Sees no input.

use std::time::Instant;

/// How long a slot is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// From the start to the end.
    #[default]
    Serving,
    /// From the change that is under way on, if all of its processes come up.
    Pending,
    /// Until the change that is under way.
    Leaving,
    /// No more. Processes that were started for it may still retire.
    Removed,
    /// No more, and nobody knows of it: it can become another.
    Free,
}

impl Life {
    /// Whether it is there no more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Removed | Self::Free)
    }
}

/// When a slot was removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    /// The last process that may have heard of it.
    pub(crate) last: u64,
    pub(crate) at: Instant,
}

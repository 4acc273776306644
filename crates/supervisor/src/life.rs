//! How long a slot is there for.
//!
//! Runs in: the launcher. Sees no input.

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
}

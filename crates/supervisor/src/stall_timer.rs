//! How long the line `serving on ...` waits for what fails.
//!
//! Runs in: the launcher, as root, and the guard. Sees: no input. Never: does anything by itself; `announcing` looks at it.

use std::time::Instant;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct StallTimer {
    /// When it is looked again whether only what fails is not up.
    pub(crate) next_look: Option<Instant>,
    /// When the wait has an end, if only what fails is not up.
    pub(crate) until: Option<Instant>,
}

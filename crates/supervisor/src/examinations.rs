//! The examinations of programs that are under way beside the loop, and those that have ended.
//!
//! Runs in: the launcher, as root. Sees: nothing of what is examined. Never: begins one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::spawn::examination::Examination;

/// The examinations of a server.
#[derive(Debug, Default)]
pub(crate) struct Examinations {
    /// Those that are under way, by their slots.
    pub(crate) running: BTreeMap<usize, Running>,
    /// The slots of those that have ended, which are to be started.
    pub(crate) ended: BTreeSet<usize>,
}

/// One that is under way.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) serial: u64,
    pub(crate) examination: Examination,
    pub(crate) deadline: Instant,
}

//! Which processes were asked whether they can go, and until when what is wanted waits for them.
//!
//! Runs in: the launcher, as root. Sees: the clock. Never: keeps back what is wanted longer than [`PATIENCE`] for those
//! that say nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often it is looked whether memory is scarce while it is.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// LIMIT: how long an answer keeps what is wanted from being started.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is asked of whom.
#[derive(Debug)]
pub(crate) struct MemoryReclaim {
    /// Processes that were asked whether they have connections, and when.
    pub(crate) asked: BTreeMap<u64, Instant>,
    /// When it is looked again, if a process is there that could go.
    pub(crate) next: Option<Instant>,
    /// Until when nothing starts on demand.
    pub(crate) held_until: Option<Instant>,
}

impl Default for MemoryReclaim {
    fn default() -> Self {
        Self { asked: BTreeMap::new(), next: Some(Instant::now()), held_until: None }
    }
}

impl MemoryReclaim {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Until when what is wanted waits for what goes.
    pub(crate) fn held_until(&self, now: Instant) -> Option<Instant> {
        self.held_until.filter(|until| *until > now)
    }

    /// Something starts that could go again.
    pub(crate) fn starts(&mut self, now: Instant) {
        let soon = now + LOOK_AGAIN;
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// Whether somebody was asked who may yet say something.
    pub(crate) fn is_answered_soon(&self, now: Instant) -> bool {
        self.asked.values().any(|at| *at + PATIENCE > now)
    }

    /// A process has ended.
    pub(crate) fn forget(&mut self, serial: u64) {
        self.asked.remove(&serial);
    }
}

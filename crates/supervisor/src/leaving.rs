//! Helpers that were killed, or have done their work, and have yet to go: one that waits for a file system stays until
//! that answers.
//!
//! Runs in: the launcher, as root. Sees: nothing of them. Never: waits for one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sys::process::Child;

/// LIMIT: for how long anything is put off until such a process has gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// Processes that are about to go, by their serial numbers, each with what it was for.
#[derive(Debug)]
pub struct Leaving<For>(BTreeMap<u64, (For, Child, Instant)>);

impl<For> Default for Leaving<For> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<For> Leaving<For> {
    /// Kills one.
    pub fn kill(&mut self, serial: u64, what: For, child: Child) {
        child.kill();
        self.let_go(serial, what, child);
    }

    /// Takes one that has done its work.
    pub fn let_go(&mut self, serial: u64, what: For, child: Child) {
        self.0.insert(serial, (what, child, Instant::now()));
    }

    /// Lets go of one that has ended; whether `serial` is one.
    pub fn reap(&mut self, serial: u64) -> bool {
        let Some((_, child, _)) = self.0.get(&serial) else { return false };
        if !matches!(child.try_wait(), Ok(None)) {
            self.0.remove(&serial);
        }
        true
    }

    /// What those are for that have yet to go.
    pub fn each(&self) -> impl Iterator<Item = &For> {
        self.0.values().map(|(what, ..)| what)
    }

    /// The same, to be changed.
    pub fn each_mut(&mut self) -> impl Iterator<Item = &mut For> {
        self.0.values_mut().map(|(what, ..)| what)
    }

    /// Whether one may still go at once: who has waited for that for long enough goes on without, as it may never go.
    pub fn is_waited_for(&self, now: Instant) -> bool {
        self.0.values().any(|(_, _, since)| *since + PATIENCE > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_go_is_waited_for_only_so_long() {
        let sleep = || {
            sys::process::begin_work(&[], || {
                loop {
                    std::thread::park()
                }
            })
            .unwrap()
        };
        let (mut leaving, now) = (Leaving::default(), Instant::now());
        leaving.kill(7, "it", sleep());
        assert_eq!(leaving.each().collect::<Vec<_>>(), [&"it"]);
        assert!(leaving.is_waited_for(now) && !leaving.is_waited_for(Instant::now() + PATIENCE));
        assert!(!leaving.reap(8));
        while leaving.each().next().is_some() {
            assert!(leaving.reap(7));
            std::thread::yield_now();
        }
        assert!(!leaving.reap(7) && !leaving.is_waited_for(now));
    }
}

//! Whether the filters of a chain have come up that gates use already.
//!
//! Runs in: the launcher, as root. Sees: the state that the kernel shows of each filter, and whether a filter reads.
//! Never: keeps requests from a chain for it: they wait there.
//!
//! A filter is any program and says nothing. It has come up when it has read something, or rests: all of its work
//! begins with a read that waits for a request. One that spins, waits for a disk or is stopped has not, and is ended
//! when it should have. One that sleeps before it reads cannot be told from one that waits for a request, until there
//! is one.

use std::fs;
use std::time::{Duration, Instant};

/// How often the launcher looks whether filters rest.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// LIMIT: at how many looks in a row a filter must rest: a program may wait for something while it starts.
pub(crate) const RESTS: u32 = 4;

/// What is known of filters that are on their way.
#[derive(Debug)]
pub(crate) struct ChainStart {
    /// At how many looks in a row each has rested, in the order of the chain.
    rests: Vec<u32>,
    pub(crate) look_at: Instant,
}

impl ChainStart {
    /// Nothing is known of filters that run from now on.
    pub(crate) fn new(now: Instant) -> Self {
        Self { rests: Vec::new(), look_at: now + LOOK }
    }

    /// Takes what is seen of each filter: whether it rests, and whether it has read anything; whether all have come up.
    pub(crate) fn is_over(&mut self, seen: &[(bool, bool)], now: Instant) -> bool {
        self.look_at = now + LOOK;
        self.rests.resize(seen.len(), 0);
        for (count, (rests, has_read)) in self.rests.iter_mut().zip(seen) {
            *count = match (has_read, rests) {
                (true, _) => RESTS,
                (false, true) => *count + 1,
                (false, false) => 0,
            };
        }
        self.are_up().all(|is_up| is_up)
    }

    /// Whether each filter has come up, as far as it alone is concerned.
    pub(crate) fn are_up(&self) -> impl Iterator<Item = bool> {
        self.rests.iter().map(|count| *count >= RESTS)
    }
}

/// Whether the kernel says of a process that it waits for something.
pub(crate) fn rests(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    // The name before the state is in parentheses and may hold any byte, parentheses included.
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_waits_rests() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while !rests(child.id()) {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!rests(child.id()));
    }

    #[test]
    fn a_chain_has_come_up_when_each_filter_has_rested_for_a_while_or_has_read() {
        let now = Instant::now();
        let (works, rests, reads) = ((false, false), (true, false), (false, true));
        let mut start = ChainStart::new(now);
        assert!(start.is_over(&[reads, reads], now));
        let mut start = ChainStart::new(now);
        for _ in 1..RESTS {
            assert!(!start.is_over(&[rests, reads], now));
        }
        // It has worked once more, as one does that waits for something while it starts.
        assert!(!start.is_over(&[works, reads], now));
        for _ in 1..RESTS {
            assert!(!start.is_over(&[rests, reads], now));
        }
        assert!(start.are_up().eq([false, true]));
        assert!(start.is_over(&[rests, reads], now));
        assert_eq!(start.look_at, now + LOOK);
    }
}

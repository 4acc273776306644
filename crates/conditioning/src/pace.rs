//! Whether a body comes, or a response is taken, fast enough.
//!
//! Runs in: gates, site workers, filters; pure. Sees: how many bytes went when. Never: lets a client live for long on
//! having been fast before: a transfer is judged piece by piece.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.1 ("split the sendfile into many small pieces, and
//! exit if any piece is received too slowly").

use std::time::{Duration, Instant};

/// Bytes of a piece.
pub const PIECE: u64 = 64 * 1024;

/// A rate that a transfer must keep, and the time that it is given to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRate {
    bytes_per_second: u32,
    grace: Duration,
}

impl MinRate {
    /// At least so many bytes a second, none if that is 0, after `grace`.
    pub const fn new(bytes_per_second: u32, grace: Duration) -> Self {
        Self { bytes_per_second, grace }
    }

    /// Whether `bytes` in the time `elapsed` are enough.
    pub fn allowed(&self, bytes: u64, elapsed: Duration) -> bool {
        self.timeout(bytes).is_none_or(|timeout| elapsed <= timeout)
    }

    /// How long `bytes` may take; without a rate, any time.
    pub fn timeout(&self, bytes: u64) -> Option<Duration> {
        let rate = u64::from(self.bytes_per_second);
        let whole = bytes.checked_div(rate)?;
        let rest = (bytes % rate) * 1_000_000_000 / rate;
        Some(self.grace.saturating_add(Duration::from_secs(whole)).saturating_add(Duration::from_nanos(rest)))
    }
}

/// One transfer, judged piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: MinRate,
    since: Instant,
    /// Bytes of the piece that is under way.
    moved: u64,
}

impl Pace {
    /// A transfer begins.
    pub fn new(rate: MinRate, now: Instant) -> Self {
        Self { rate, since: now, moved: 0 }
    }

    /// `bytes` have gone.
    pub fn moved(&mut self, bytes: u64, now: Instant) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= PIECE {
            (self.since, self.moved) = (now, 0);
        }
    }

    /// The transfer waited for us, not for the client, and begins its piece anew.
    pub fn excuse(&mut self, now: Instant) {
        (self.since, self.moved) = (now, 0);
    }

    /// Until when more bytes must go; without a rate, no time.
    pub fn deadline(&self) -> Option<Instant> {
        self.since.checked_add(self.rate.timeout(self.moved)?)
    }

    /// Whether it is too slow to go on.
    pub fn too_slow(&self, now: Instant) -> bool {
        !self.rate.allowed(self.moved, now.duration_since(self.since))
    }
}

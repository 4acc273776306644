//! Whether a range of addresses has a backend to itself: who is alone may be lent most of its places, who is not a
//! quarter.
//!
//! Untrusted input: addresses of clients. Must never: grow with the number of those.

use std::time::Duration;

use conditioning::AddressRange;
use tokio::time::Instant;

/// LIMIT: how long a range counts as one that asks, after its last request: as long as a request waits for a place.
const LATELY: Duration = Duration::from_secs(10);

/// The two ranges that have asked last.
#[derive(Default)]
pub(super) struct Lately {
    last: Option<(AddressRange, Instant)>,
    before: Option<(AddressRange, Instant)>,
}

impl Lately {
    /// Takes note of a request.
    pub fn note(&mut self, range: AddressRange, now: Instant) {
        if self.last.is_none_or(|(last, _)| last != range) {
            self.before = self.last;
        }
        self.last = Some((range, now));
    }

    /// Whether nobody outside of `range` has asked lately.
    pub fn is_alone(&self, range: AddressRange, now: Instant) -> bool {
        let asks = |(other, at): (AddressRange, Instant)| other != range && now.duration_since(at) < LATELY;
        !self.last.is_some_and(asks) && !self.before.is_some_and(asks)
    }
}

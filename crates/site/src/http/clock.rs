//! The time, read once per event and formatted once per second.
//!
//! Untrusted input: none. Must never: format a date per request.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use request::date::{DATE_BYTES, date};

/// The current second.
pub struct DateClock {
    tick: Cell<u64>,
    until: Cell<Instant>,
    date: Cell<[u8; DATE_BYTES]>,
    value: RefCell<HeaderValue>,
}

impl Default for DateClock {
    fn default() -> Self {
        DateClock {
            tick: Cell::new(0),
            until: Cell::new(Instant::now()),
            date: Cell::new([b'0'; DATE_BYTES]),
            value: RefCell::new(HeaderValue::from_static("")),
        }
    }
}

impl DateClock {
    /// The number of the second that `now` lies in, counted from the first that was seen.
    #[inline]
    pub fn tick(&self, now: Instant) -> u64 {
        if now >= self.until.get() {
            self.advance(now);
        }
        self.tick.get()
    }

    #[cold]
    fn advance(&self, now: Instant) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Seconds in which nobody asked have passed as well.
        let missed = now.saturating_duration_since(self.until.get()).as_secs();
        self.until.set(now + Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into()));
        let date = date(since.as_secs());
        self.date.set(date);
        // INVARIANT: a date is printable.
        if let Ok(value) = HeaderValue::from_bytes(&date) {
            self.value.replace(value);
        }
        self.tick.set(self.tick.get() + 1 + missed);
    }

    /// The date as of the last [`DateClock::tick`].
    pub fn date(&self) -> [u8; DATE_BYTES] {
        self.date.get()
    }

    /// The same as the value of a field, of which all copies share the bytes.
    pub fn date_value(&self) -> HeaderValue {
        self.value.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_once_per_second() {
        let clock = DateClock::default();
        let now = Instant::now();
        let first = clock.tick(now);
        assert_eq!(first, clock.tick(now));
        assert_ne!(first, clock.tick(now + Duration::from_secs(1)));
    }
}

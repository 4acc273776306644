//! When a responder is asked again.
//!
//! Runs in: the stapler; pure. Sees: times. Never: asks so often that it is a burden.

use std::time::Duration;

/// LIMIT: how long an answer is used before a newer one is asked for.
const REFRESH: Duration = Duration::from_secs(2 * 3600);
/// LIMIT: how long after an attempt that failed there is another. Source: the same.
pub(crate) const RETRY: Duration = Duration::from_secs(300);
/// LIMIT: at most so often, however short the life of answers is.
const SHORTEST: Duration = Duration::from_secs(10);

/// How long to wait after an answer that is good until then: so long that half of its time is left for what may fail.
pub(crate) fn pause(until: u64, now: u64) -> Duration {
    Duration::from_secs(until.saturating_sub(now) / 2).clamp(SHORTEST, REFRESH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_renewed_well_before_its_end() {
        for (life, seconds) in
            [(7 * 24 * 3600, 7200), (4 * 3600, 7200), (3600, 1800), (60, 30), (15, 10), (0, 10)]
        {
            assert_eq!(pause(1000 + life, 1000), Duration::from_secs(seconds), "{life}");
        }
        assert_eq!(pause(1, 1000), SHORTEST);
    }
}

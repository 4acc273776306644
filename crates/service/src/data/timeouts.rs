//! How long calls may take, as a data proxy says: whoever waits has a clock of its own, as a proxy that hangs says nothing.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use wire::data::{TIMEOUTS_MAX, WORD_WAIT};

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Timeouts {
    /// Of a call that has none of its own; nothing if nobody knows.
    usual: Option<Duration>,
    by_name: HashMap<String, Duration>,
}

impl Timeouts {
    /// All of them are said anew.
    pub(super) fn begin(&mut self, usual_ms: u32) {
        self.usual = (usual_ms > 0).then(|| Duration::from_millis(usual_ms.into()));
        self.by_name.clear();
    }

    /// A call of this name may take so long.
    pub(super) fn add(&mut self, name: &str, timeout_ms: u32) {
        if self.by_name.len() < TIMEOUTS_MAX {
            self.by_name.insert(name.to_owned(), Duration::from_millis(timeout_ms.into()));
        }
    }

    /// Until when a call is waited for that was made then.
    pub(super) fn until(&self, name: &str, made: Instant) -> Option<Instant> {
        let timeout = self.by_name.get(name).copied().or(self.usual)?;
        Some(made + timeout + WORD_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_waited_for_as_long_as_the_proxy_has_said_last() {
        let (mut timeouts, made) = (Timeouts::default(), Instant::now());
        let until = |timeouts: &Timeouts, name| timeouts.until(name, made).map(|until| until - made);
        let after = |ms| Some(Duration::from_millis(ms) + WORD_WAIT);
        assert_eq!(until(&timeouts, "get"), None);
        timeouts.begin(5000);
        timeouts.add("get", 10);
        assert_eq!((until(&timeouts, "get"), until(&timeouts, "put")), (after(10), after(5000)));
        timeouts.begin(0);
        timeouts.add("put", 7);
        assert_eq!((until(&timeouts, "get"), until(&timeouts, "put")), (None, after(7)));
    }
}

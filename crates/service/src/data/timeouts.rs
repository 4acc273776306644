//! How long calls may take, as a data proxy says: whoever waits has a clock of its own, as a proxy that hangs says
//! nothing.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wire::Text;
use wire::data::{DataProxyToService, TIMEOUTS_MAX, WORD_WAIT};

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeouts {
    /// Of a call that has none of its own; nothing if nobody knows.
    usual: Option<Duration>,
    by_name: HashMap<String, Duration>,
}

impl Timeouts {
    /// Takes what a proxy says of them; of other messages, nothing.
    pub(super) fn take(&mut self, message: &DataProxyToService) {
        match message {
            DataProxyToService::Timeouts { usual_ms } => self.begin(*usual_ms),
            DataProxyToService::Timeout { name, timeout_ms } => self.add(name.as_str(), *timeout_ms),
            _ => {}
        }
    }

    /// The messages in which a proxy would state these timeouts.
    fn said(&self) -> Vec<DataProxyToService> {
        let ms = |timeout: Duration| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let usual_ms = self.usual.map_or(0, ms);
        let one = |(name, timeout): (&String, &Duration)| DataProxyToService::Timeout {
            name: Text::new(name),
            timeout_ms: ms(*timeout),
        };
        std::iter::once(DataProxyToService::Timeouts { usual_ms })
            .chain(self.by_name.iter().map(one))
            .collect()
    }

    /// All of them are said anew.
    fn begin(&mut self, usual_ms: u32) {
        self.usual = (usual_ms > 0).then(|| Duration::from_millis(usual_ms.into()));
        self.by_name.clear();
    }

    /// A call of this name may take so long.
    fn add(&mut self, name: &str, timeout_ms: u32) {
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

/// The timeouts of a source, for who passes calls on to it from another machine.
#[doc(hidden)]
#[derive(Debug)]
pub struct SaidTimeouts(pub(super) watch::Receiver<Timeouts>);

impl SaidTimeouts {
    /// Waits until the data proxy has said them, or has said them anew; returns the messages that say them.
    pub async fn next(&mut self) -> Vec<DataProxyToService> {
        if self.0.changed().await.is_err() {
            // There is no source any more.
            std::future::pending::<()>().await;
        }
        self.0.borrow_and_update().said()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_passes_them_on_says_what_was_said() {
        let mut timeouts = Timeouts::default();
        let said = [
            DataProxyToService::Timeouts { usual_ms: 5000 },
            DataProxyToService::Timeout { name: Text::new("get"), timeout_ms: 300 },
        ];
        said.iter().for_each(|message| timeouts.take(message));
        assert_eq!(timeouts.said(), said);
        timeouts.take(&DataProxyToService::Timeouts { usual_ms: 0 });
        assert_eq!(timeouts.said(), [DataProxyToService::Timeouts { usual_ms: 0 }]);
    }

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

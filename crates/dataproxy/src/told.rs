//! The counters and the log of the process, for all its channels.
//!
//! Sees: names that services made up. Never: writes a line of the log for each of them.

use std::cell::Cell;
use std::time::Instant;

use wire::log::Level;
use worker::counters::Counters;
use worker::log::Log;
use worker::refused::LogLimiter;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct ProcessLog {
    pub(crate) counters: Counters,
    pub(crate) log: Log,
    /// Calls that were refused, and since when nobody was told.
    refused: Cell<u64>,
    limiter: LogLimiter,
}

impl ProcessLog {
    pub(crate) fn new(log: Log) -> Self {
        Self { counters: Counters::default(), log, refused: Cell::new(0), limiter: LogLimiter::default() }
    }

    /// Counts what was refused, and tells of it now and then.
    pub(crate) fn refused(&self, what: &str) {
        self.refused.set(self.refused.get() + 1);
        if let Some(untold) = self.limiter.tell(Instant::now()) {
            let more = if untold > 0 { format!(" ({untold} more before)") } else { String::new() };
            self.log.event(Level::Warning, format_args!("{what}{more}"));
        }
    }

    /// How much was refused.
    #[cfg(test)]
    pub(crate) fn refusals(&self) -> u64 {
        self.refused.get()
    }
}

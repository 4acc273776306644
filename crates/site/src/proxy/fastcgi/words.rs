//! Passes the standard error of scripts on to the error log.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: every byte of it; the logger escapes them. Must
//! never: let a script fill the disk.

use std::cell::Cell;
use std::time::{Duration, Instant};

use wire::log::Level;
use worker::log::Log;

/// LIMIT: lines of one target in a second; a script that fails says a few.
const LINES_MAX: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

/// The way to the log for one target.
pub(crate) struct Words {
    log: Log,
    /// Where its servers listen.
    servers: String,
    since: Cell<Instant>,
    said: Cell<u32>,
}

impl Words {
    pub fn new(log: Log, servers: String) -> Self {
        Self { log, servers, since: Cell::new(Instant::now()), said: Cell::new(0) }
    }

    /// Logs the lines of `text`, as far as there is room in this second.
    pub fn say(&self, text: &[u8]) {
        for line in text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
        {
            if self.since.get().elapsed() >= SECOND {
                let dropped = self.said.replace(0).saturating_sub(LINES_MAX);
                self.since.set(Instant::now());
                if dropped > 0 {
                    let text = format_args!("FastCGI {}: {dropped} lines were left out", self.servers);
                    self.log.event(Level::Warning, text);
                }
            }
            self.said.set(self.said.get() + 1);
            if self.said.get() <= LINES_MAX {
                let line = String::from_utf8_lossy(line);
                self.log.event(Level::Error, format_args!("FastCGI {}: {line}", self.servers));
            }
        }
    }
}

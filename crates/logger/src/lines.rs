//! The standard error of a process, cut into lines.
//!
//! Runs in: the logger. Sees: whatever any process prints, including panics and untrusted bytes in them. Never:
//! holds more than one line.

use std::rc::Rc;
use std::time::Instant;

use wire::log::Level;
use worker::log::now_us;

use crate::error_log_limiter::ErrorLogLimiter;
use crate::escape::put_text;
use crate::output::LogFiles;
use crate::terminal::{Tail, push};

/// The longest line, in bytes; what is longer becomes several.
///
/// LIMIT: as long as the text of an event.
const LINE_MAX: usize = wire::log::TEXT_MAX;

/// The logger's state of a process's standard error.
#[derive(Debug)]
pub struct LineReader {
    partial: Vec<u8>,
    /// The level of the line that goes on, if `partial` is not its beginning.
    goes_on: Option<Level>,
    pub(crate) limiter: ErrorLogLimiter,
    /// Its last lines, if somebody may want to see them.
    tail: Option<Tail>,
}

impl LineReader {
    /// The standard error of the process that is called `label` in the log.
    pub fn new(label: &str) -> Self {
        let limiter = ErrorLogLimiter::new(label);
        Self { partial: Vec::new(), goes_on: None, limiter, tail: None }
    }

    /// Keeps its last lines in `tail`, too.
    pub fn with_tail(self, tail: Option<Tail>) -> Self {
        Self { tail, ..self }
    }

    /// Whether its last lines are in `tail`.
    pub fn fills(&self, tail: &Tail) -> bool {
        self.tail.as_ref().is_some_and(|own| Rc::ptr_eq(own, tail))
    }

    /// Adds the lines that `bytes` complete to the error log.
    pub fn take(&mut self, bytes: &[u8], files: &mut LogFiles, now: Instant) {
        let mut rest = bytes;
        while !rest.is_empty() {
            // INVARIANT: `partial` is shorter than a line, so there is room for at least one byte.
            let (window, _) = rest.split_at(rest.len().min(LINE_MAX - self.partial.len()));
            let end = window.iter().position(|byte| *byte == b'\n');
            self.partial.extend_from_slice(&window[..end.unwrap_or(window.len())]);
            rest = &rest[end.map_or(window.len(), |end| end + 1)..];
            if end.is_some() {
                self.put(files, now);
                self.goes_on = None;
            } else if self.partial.len() == LINE_MAX {
                self.goes_on = Some(self.put(files, now));
            }
        }
    }

    /// Adds a last line without an end, and what is still to be said.
    pub fn finish(&mut self, files: &mut LogFiles, now: Instant) {
        self.put(files, now);
        self.limiter.finish(files);
    }

    fn put(&mut self, files: &mut LogFiles, now: Instant) -> Level {
        let (level, text) = match self.goes_on {
            Some(level) => (level, &self.partial[..]),
            None => split_level(&self.partial),
        };
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !text.is_empty() {
            if let Some(tail) = &self.tail {
                let mut escaped = Vec::new();
                put_text(&mut escaped, text);
                push(tail, &escaped);
            }
            self.limiter.line(files, now, now_us(), level, text);
        }
        self.partial.clear();
        level
    }
}

fn split_level(line: &[u8]) -> (Level, &[u8]) {
    let levels = [(Level::Error, b"error:".as_slice()), (Level::Warning, b"warning:")];
    let found = levels
        .into_iter()
        .find_map(|(level, prefix)| Some((level, line.strip_prefix(prefix)?.trim_ascii_start())));
    found.unwrap_or((Level::Info, line))
}

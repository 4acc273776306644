//! The log files: lines wait in memory for one write per turn of the loop.
//!
//! Runs in: the logger. Sees: records of any client. Never: opens a file, gives up because a disk is full, or
//! holds more than a stated limit in memory.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use wire::log::{Access, Level};
use worker::log::now_us;

use crate::calendar::Clock;
use crate::format::{Format, access_line, event_line, lost_line};
use crate::quota::Quotas;
use crate::syslog::Syslog;

/// How much one file may have waiting before it is written without waiting for the end of the turn.
const WRITE_AT: usize = 64 * 1024;

/// How much one file may have waiting when it cannot be written.
///
/// LIMIT: 4 MiB, about 40,000 lines: a disk that is full for two seconds at 20,000 requests a second loses none.
const PENDING_MAX: usize = 4 * 1024 * 1024;

/// How soon a file is tried again after a failure.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// How often standard error is told of a file that cannot be written.
const SAY: Duration = Duration::from_secs(60);

/// Why lines of an access log are left out, and what to do.
const FULL: &str = "the file is as long as `access_bytes` lets it be";
const ROTATE: &str = "rotate it, or raise `access_bytes` in [log]";

/// All files of the logger.
#[derive(Debug)]
pub struct LogFiles {
    format: Format,
    /// How long an access log may become.
    access_bytes: u64,
    clock: Clock,
    error: LogFile,
    access: BTreeMap<u16, LogFile>,
    /// INVARIANT: the sites in whose access logs something waits. There may be thousands of others, which no batch of
    /// records is to look at.
    waiting: BTreeSet<u16>,
    /// The sites whose access logs are not open, and whether they were asked for.
    unopened: BTreeMap<u16, bool>,
    /// Whether none is opened any more.
    is_last: bool,
    syslog: Option<Syslog>,
    /// The bytes that sites may still write into the error log.
    pub(crate) quotas: Quotas,
}

/// One file, or the absence of one: then its lines are dropped, as the launcher wants no such log.
#[derive(Debug)]
struct LogFile {
    name: String,
    file: Option<File>,
    pending: Vec<u8>,
    /// Lines for which there was no room since the last failure.
    lost: u64,
    failure: Option<WriteFailure>,
    /// How long the file is, as far as this logger knows.
    length: u64,
    excess: Excess,
}

/// Lines that were left out, as the file had all that it may have.
#[derive(Debug, Default)]
struct Excess {
    /// Since that was said last.
    untold: u64,
    /// Since the file was begun.
    all: u64,
    /// Nothing is said before.
    report_at: Option<Instant>,
}

#[derive(Debug)]
struct WriteFailure {
    error: io::Error,
    /// Not to be tried before.
    retry_at: Option<Instant>,
    report_at: Instant,
}

impl Default for LogFiles {
    fn default() -> Self {
        Self {
            format: Format::default(),
            access_bytes: u64::MAX,
            clock: Clock::default(),
            error: LogFile::new("error log".into()),
            access: BTreeMap::new(),
            waiting: BTreeSet::new(),
            unopened: BTreeMap::new(),
            is_last: false,
            syslog: None,
            quotas: Quotas::default(),
        }
    }
}

impl LogFiles {
    /// Sets the format of access logs.
    pub fn set_format(&mut self, format: Format) {
        self.format = format;
    }

    /// Sets how long an access log may become.
    pub fn set_access_bytes(&mut self, bytes: u64) {
        self.access_bytes = bytes;
    }

    /// Sets the error log; an earlier one is closed.
    pub fn set_error(&mut self, file: File) {
        let now = Instant::now();
        write_error(&mut self.error, &mut self.clock, now);
        self.error.replace(file);
        write_error(&mut self.error, &mut self.clock, now);
    }

    /// Sets where lines of the error log go beside it.
    pub fn set_syslog(&mut self, syslog: Option<Syslog>) {
        self.syslog = syslog;
    }

    /// Sets the access log of a site, which is called `name`; an earlier one is closed.
    pub fn set_access(&mut self, site: u16, name: &str, file: File) {
        self.unopened.remove(&site);
        let (now, access_bytes) = (Instant::now(), self.access_bytes);
        let (output, clock, format) = self.output_of(site, name, now);
        output.replace(file);
        let left_out = output.excess.all;
        // It may be the same file, with as much in it.
        if left_out > 0 && output.length < access_bytes / 2 {
            output.excess = Excess::default();
            lost_line(&mut output.pending, clock, format, now_us(), left_out, FULL);
        }
        write_access(output, clock, format, now);
        if output.pending.is_empty() {
            self.waiting.remove(&site);
        }
    }

    /// Takes notice that the access log of a site is not open; an earlier one is closed, unless something waits for it.
    pub fn close_access(&mut self, site: u16, name: &str) {
        let (output, ..) = self.output_of(site, name, Instant::now());
        if output.pending.is_empty() {
            output.file = None;
            self.waiting.remove(&site);
            self.unopened.insert(site, false);
        }
    }

    /// The access log of a site, to which what waits for it has been written; and what else it takes to write there.
    fn output_of(&mut self, site: u16, name: &str, now: Instant) -> (&mut LogFile, &mut Clock, Format) {
        let name = match site {
            wire::NO_PARTITION => "access log of no site".into(),
            _ => format!("access log of site {name}"),
        };
        let output = self.access.entry(site).or_insert_with(|| LogFile::new(name.clone()));
        if output.name != name {
            // The number was another site's, whose lines are not for this file.
            write_access(output, &mut self.clock, self.format, now);
            std::mem::replace(output, LogFile::new(name)).give_up();
        }
        write_access(output, &mut self.clock, self.format, now);
        (output, &mut self.clock, self.format)
    }

    /// Whether there are sites whose access logs are not open.
    pub fn has_unopened(&self) -> bool {
        !self.unopened.is_empty() && !self.is_last
    }

    /// Whether a line for this site must wait until its access log is open.
    pub fn lacks(&self, site: u16) -> bool {
        !self.is_last && self.unopened.contains_key(&site)
    }

    /// Takes notice that a log that is not open is asked for; whether it was not before.
    pub fn asks_for(&mut self, site: u16) -> bool {
        self.unopened.get_mut(&site).is_some_and(|asked| !std::mem::replace(asked, true))
    }

    /// No log is opened any more: what is for one that is not goes to the log of no site.
    pub fn open_no_more(&mut self) {
        self.is_last = true;
    }

    /// Adds a line to the access log of the record's site.
    pub fn access(&mut self, access: &Access<'_>) {
        let is_unopened = self.is_last && self.unopened.contains_key(&access.site);
        let site = if is_unopened { wire::NO_PARTITION } else { access.site };
        let Some(output) = self.access.get_mut(&site) else { return };
        let Some(out) = output.room() else { return };
        let before = out.len();
        access_line(out, &mut self.clock, self.format, access);
        if output.fits(self.access_bytes) {
            if before == 0 {
                self.waiting.insert(site);
            }
            return;
        }
        output.pending.truncate(before);
        if output.leave_out(Instant::now())
            && let Some(text) = output.tell_excess()
        {
            self.event(now_us(), Level::Warning, "logger", text.as_bytes());
        }
    }

    /// Adds a line to the error log; `label` must be escaped already.
    pub fn event(&mut self, time_us: u64, level: Level, label: &str, text: &[u8]) {
        if let Some(out) = self.error.room() {
            event_line(out, &mut self.clock, time_us, level, label, text);
        }
        if let Some(syslog) = &mut self.syslog {
            syslog.event(level, label, text);
        }
    }

    /// Writes what waits, as far as the files take it.
    pub fn write(&mut self, now: Instant) {
        write_error(&mut self.error, &mut self.clock, now);
        self.write_waiting(0, now);
    }

    /// Writes the access logs in which so many bytes wait, as far as the files take it.
    fn write_waiting(&mut self, at_least: usize, now: Instant) {
        let Self { waiting, access, clock, format, .. } = self;
        waiting.retain(|site| {
            let Some(output) = access.get_mut(site) else { return false };
            if output.pending.len() >= at_least {
                write_access(output, clock, *format, now);
            }
            !output.pending.is_empty()
        });
    }

    /// As [`LogFiles::write`], for files that have much waiting.
    pub(crate) fn write_large(&mut self, now: Instant) {
        if self.error.pending.len() >= WRITE_AT {
            write_error(&mut self.error, &mut self.clock, now);
        }
        self.write_waiting(WRITE_AT, now);
    }

    /// Whether something waits.
    pub fn waits(&self) -> bool {
        !self.error.pending.is_empty() || !self.waiting.is_empty()
    }

    /// Writes what waits for the last time, whether or not it is time for another try.
    pub fn close(mut self) {
        self.error.retry_now();
        self.access.values_mut().for_each(LogFile::retry_now);
        let untold = self.access.values_mut().filter_map(LogFile::tell_excess).collect::<Vec<_>>();
        untold.iter().for_each(|text| self.event(now_us(), Level::Warning, "logger", text.as_bytes()));
        self.write(Instant::now());
        self.error.give_up();
        self.access.values_mut().for_each(LogFile::give_up);
    }
}

fn write_error(output: &mut LogFile, clock: &mut Clock, now: Instant) {
    if let Some((lost, error)) = output.write(now) {
        let text = format!("lost {lost} lines: {error}");
        event_line(&mut output.pending, clock, now_us(), Level::Error, "logger", text.as_bytes());
        output.write(now);
    }
}

fn write_access(output: &mut LogFile, clock: &mut Clock, format: Format, now: Instant) {
    if let Some((lost, error)) = output.write(now) {
        let error = error.to_string();
        lost_line(&mut output.pending, clock, format, now_us(), lost, &error);
        output.write(now);
    }
}

impl LogFile {
    fn new(name: String) -> Self {
        let (pending, excess) = (Vec::new(), Excess::default());
        Self { name, file: None, pending, lost: 0, failure: None, length: 0, excess }
    }

    /// Takes another file; what waits goes there.
    fn replace(&mut self, file: File) {
        self.length = length_of(&file);
        self.file = Some(file);
        self.retry_now();
    }

    /// Whether the file has at most so many bytes with what waits.
    fn fits(&self, bytes: u64) -> bool {
        self.length.saturating_add(self.pending.len() as u64) <= bytes
    }

    /// Counts a line that is left out; whether that is to be said now.
    fn leave_out(&mut self, now: Instant) -> bool {
        self.excess.untold += 1;
        self.excess.all += 1;
        if self.excess.report_at.is_some_and(|at| now < at) {
            return false;
        }
        self.excess.report_at = Some(now + SAY);
        // Somebody may have cut it meanwhile.
        self.length = self.file.as_ref().map_or(0, length_of);
        true
    }

    /// Where the next line goes; without room, it is counted as lost.
    fn room(&mut self) -> Option<&mut Vec<u8>> {
        self.file.as_ref()?;
        if self.pending.len() >= PENDING_MAX {
            self.lost += 1;
            return None;
        }
        Some(&mut self.pending)
    }

    /// The line about lines that were left out, if any were.
    fn tell_excess(&mut self) -> Option<String> {
        let count = std::mem::take(&mut self.excess.untold);
        (count > 0).then(|| format!("{}: left out {count} lines: {FULL}; {ROTATE}", self.name))
    }

    /// Writes what waits; returns how many lines are to be reported lost, and why, once it works again.
    fn write(&mut self, now: Instant) -> Option<(u64, io::Error)> {
        let retry_at = self.failure.as_ref().and_then(|failure| failure.retry_at);
        if self.pending.is_empty() || retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let file = self.file.as_mut()?;
        let (written, result) = write_all(file, &self.pending);
        // A line that was written in part goes on where it was cut.
        self.pending.drain(..written);
        self.length = self.length.saturating_add(written as u64);
        if let Err(error) = result {
            self.failed(error, now);
            return None;
        }
        // Usual lines need little; what a disturbance needed is given back.
        self.pending.shrink_to(4 * WRITE_AT);
        let failure = self.failure.take()?;
        let lost = std::mem::take(&mut self.lost);
        (lost > 0).then_some((lost, failure.error))
    }

    fn failed(&mut self, error: io::Error, now: Instant) {
        let report_at = match &self.failure {
            Some(failure) if now < failure.report_at => failure.report_at,
            _ => {
                eprintln!(
                    "error: {} cannot be written: {error}; lines wait in memory, those over {PENDING_MAX} bytes are \
                     lost ({} so far); make room on its disk",
                    self.name, self.lost
                );
                now + SAY
            }
        };
        self.failure = Some(WriteFailure { error, retry_at: Some(now + RETRY), report_at });
    }

    fn retry_now(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.retry_at = None;
        }
    }

    /// Says what is lost because the logger ends.
    fn give_up(&mut self) {
        let waiting = self.pending.iter().filter(|byte| **byte == b'\n').count() as u64;
        let lost = self.lost + waiting;
        if let (Some(failure), true) = (&self.failure, lost > 0) {
            eprintln!("error: {}: lost {lost} lines: {}", self.name, failure.error);
        }
    }
}

/// How long a file is; what has no length is never full.
fn length_of(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

/// Writes `bytes`, and tells how many of them were written even if it fails.
fn write_all(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

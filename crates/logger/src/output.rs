//! The log files: lines wait in memory for one write per turn of the loop.
//!
//! Runs in: the logger. Sees: records of any client. Never: opens a file, gives up because a disk is full, or
//! holds more than a stated limit in memory.

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{OpenOptions, read_to_string};

    fn access(site: u16) -> Access<'static> {
        Access {
            time_us: 0,
            duration_us: 0,
            site,
            peer: "192.0.2.7:4711".parse().unwrap(),
            status: 200,
            body_bytes: 0,
            version: 1,
            method: b"GET",
            target: b"/",
            host: b"",
            referer: b"",
            agent: b"",
        }
    }

    #[test]
    fn a_full_disk_loses_only_what_is_over_the_limit() {
        let path = std::env::temp_dir().join(format!("bulkhead-output-{}", std::process::id()));
        let mut files = LogFiles::default();
        files.set_error(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let total = 100_000;
        let text = [b'x'; 60];
        for _ in 0..total {
            files.event(0, Level::Info, "a", &text);
            files.write_large(Instant::now());
        }
        assert!(files.waits());
        files.set_error(File::create(&path).unwrap());
        files.event(0, Level::Info, "a", b"after");
        files.close();
        let written = read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let kept = written.lines().filter(|line| line.ends_with("xxx")).count();
        let note =
            format!("error [logger] lost {} lines: No space left on device (os error 28)", total - kept);
        let mut last = written.lines().rev();
        assert!(kept > 30_000 && kept < total);
        assert!(last.next().unwrap().ends_with("after"));
        assert!(last.next().unwrap().ends_with(&note));
    }

    #[test]
    fn what_waits_for_one_of_many_sites_is_written() {
        let path = std::env::temp_dir().join(format!("bulkhead-output-sites-{}", std::process::id()));
        let mut files = LogFiles::default();
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        (0..100).for_each(|site| files.set_access(site, "a", full()));
        let access = access(7);
        files.access(&access);
        files.write_large(Instant::now());
        assert!(files.waits(), "it is not much");
        files.write(Instant::now());
        assert!(files.waits(), "nothing takes it");
        files.set_access(8, "a", File::create(&path).unwrap());
        assert!(files.waits(), "it is another's");
        files.set_access(7, "a", File::create(&path).unwrap());
        assert!(!files.waits());
        assert_eq!(read_to_string(&path).unwrap().lines().count(), 1);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_waits_for_a_site_is_not_written_for_another_of_its_number() {
        let path = std::env::temp_dir().join(format!("bulkhead-output-number-{}", std::process::id()));
        let mut files = LogFiles::default();
        files.set_access(7, "a", OpenOptions::new().write(true).open("/dev/full").unwrap());
        files.access(&access(7));
        files.write(Instant::now());
        files.set_access(7, "b", File::create(&path).unwrap());
        assert!(!files.waits());
        files.access(&access(7));
        files.close();
        assert_eq!(read_to_string(&path).unwrap().lines().count(), 1);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_log_that_is_not_open_is_asked_for_once_and_closed_when_nothing_waits() {
        let path =
            |name: &str| std::env::temp_dir().join(format!("bulkhead-output-{name}-{}", std::process::id()));
        let (own, none) = (path("own"), path("none"));
        let lines = |path| read_to_string(path).unwrap().lines().count();
        let mut files = LogFiles::default();
        files.set_access(wire::NO_PARTITION, "", File::create(&none).unwrap());
        files.close_access(7, "a");
        assert!(files.has_unopened() && files.lacks(7) && !files.lacks(8));
        assert!(files.asks_for(7) && !files.asks_for(7) && !files.asks_for(8));
        files.set_access(7, "a", File::create(&own).unwrap());
        assert!(!files.has_unopened() && !files.lacks(7));
        files.access(&access(7));
        files.close_access(7, "a");
        assert!(files.lacks(7) && files.asks_for(7) && !files.waits());
        assert_eq!(lines(&own), 1, "what waited was written");
        files.set_access(7, "a", OpenOptions::new().write(true).open("/dev/full").unwrap());
        files.access(&access(7));
        files.close_access(7, "a");
        assert!(!files.lacks(7) && files.waits(), "something waits for it");
        // Nobody is there to be asked.
        files.close_access(8, "b");
        files.open_no_more();
        assert!(!files.lacks(8) && !files.has_unopened());
        files.access(&access(8));
        files.write(Instant::now());
        assert_eq!(lines(&none), 1);
        [own, none].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    #[test]
    fn an_access_log_has_as_many_bytes_as_it_may_and_tells_what_is_left_out() {
        let path =
            |name: &str| std::env::temp_dir().join(format!("bulkhead-output-{name}-{}", std::process::id()));
        let (error, first, second) = (path("full-error"), path("full-first"), path("full-second"));
        let mut files = LogFiles::default();
        files.set_error(File::create(&error).unwrap());
        files.set_access(7, "a", File::create(&first).unwrap());
        let fill = |files: &mut LogFiles, count| {
            (0..count).for_each(|_| files.access(&access(7)));
            files.write(Instant::now());
        };
        fill(&mut files, 1);
        let line = std::fs::metadata(&first).unwrap().len();
        files.set_access_bytes(10 * line);
        fill(&mut files, 9);
        assert_eq!(
            (std::fs::metadata(&first).unwrap().len(), read_to_string(&error).unwrap().lines().count()),
            (10 * line, 0)
        );
        fill(&mut files, 5);
        assert_eq!(std::fs::metadata(&first).unwrap().len(), 10 * line);
        let said = read_to_string(&error).unwrap();
        assert!(
            said.ends_with(&format!("access log of site a: left out 1 lines: {FULL}; {ROTATE}\n")),
            "{said}"
        );
        // The lines of before count as well.
        files.set_access(7, "a", OpenOptions::new().append(true).open(&first).unwrap());
        fill(&mut files, 1);
        assert_eq!(std::fs::metadata(&first).unwrap().len(), 10 * line);
        files.set_access(7, "a", File::create(&second).unwrap());
        fill(&mut files, 1);
        let written = read_to_string(&second).unwrap();
        assert!(
            written.starts_with("# [") && written.contains(&format!("lost 6 lines: {FULL}\n")),
            "{written}"
        );
        assert_eq!(written.lines().count(), 2);
        [error, first, second].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    #[test]
    fn a_log_that_was_not_given_is_no_failure() {
        let mut files = LogFiles::default();
        files.event(0, Level::Info, "a", b"x");
        assert!(!files.waits());
    }
}

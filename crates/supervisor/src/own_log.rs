//! What the launcher itself has to say: one line each, to standard error and to the error log.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: passes on text from a child.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::{SystemTime, UNIX_EPOCH};

/// RFC 3164 4.1.1: the facility of daemons, and how bad it is.
const INFO: u8 = 3 << 3 | 6;
/// See [`INFO`].
const WARNING: u8 = 3 << 3 | 4;

/// Where the launcher's lines go.
#[derive(Debug)]
pub struct OwnLog {
    error_log: File,
    syslog: Option<UnixDatagram>,
}

impl OwnLog {
    /// Writes to standard error, to `error_log`, which is open for appending, and to `syslog`, which is connected and
    /// does not block.
    pub fn new(error_log: File, syslog: Option<UnixDatagram>) -> Self {
        Self { error_log, syslog }
    }

    /// Something happened as it should.
    pub fn info(&mut self, text: impl Display) {
        self.line("info", INFO, &text);
    }

    /// Something is not as it should be; the line says what follows and what to do.
    pub fn warning(&mut self, text: impl Display) {
        self.line("warning", WARNING, &text);
    }

    fn line(&mut self, level: &str, priority: u8, text: &dyn Display) {
        let text = text.to_string();
        // A full disk or a closed terminal must not end the server; there is nobody left to tell.
        let _ = self.error_log.write_all(lines(SystemTime::now(), level, &text).as_bytes());
        for line in text.lines() {
            if let Some(syslog) = &self.syslog {
                let _ = syslog.send(format!("<{priority}>bulkhead: [bulkheadd] {line}").as_bytes());
            }
        }
        let _ = std::io::stderr().write_all(format!("bulkhead: {text}\n").as_bytes());
    }
}

/// Text as it stands in the error log: the mistakes of a configuration, for example, are several lines, each with its
/// time and whose it is.
fn lines(time: SystemTime, level: &str, text: &str) -> String {
    let head = format!("{} {level} [bulkheadd] ", timestamp(time));
    text.lines().flat_map(|line| [&*head, line, "\n"]).collect()
}

/// RFC 3339 in UTC with milliseconds.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a day counted from 1970-01-01 (Gregorian calendar, years from March on).
pub fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_line_has_its_time_and_label() {
        let head = "1970-01-01T00:00:00.000Z warning [bulkheadd]";
        assert_eq!(lines(UNIX_EPOCH, "warning", "a"), format!("{head} a\n"));
        let several = lines(UNIX_EPOCH, "warning", "not reloaded:\nx.toml:1:1: error\n   = help: b");
        let expected = format!("{head} not reloaded:\n{head} x.toml:1:1: error\n{head}    = help: b\n");
        assert_eq!(several, expected);
    }

    #[test]
    fn writes_rfc_3339() {
        let at = |seconds, ms: u32| timestamp(UNIX_EPOCH + Duration::new(seconds, ms * 1_000_000));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_795_237_170, 123), "2026-11-21T04:59:30.123Z");
    }
}

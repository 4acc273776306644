//! Limits the lines of one source in the error log, and the logger's lines about it.
//!
//! Runs in: the logger. Sees: events of any client. Never: lets one source fill the error log, or keeps silent
//! about what it left out.

use std::time::{Duration, Instant};

use wire::log::Level;
use worker::log::now_us;

use crate::escape::put_text;
use crate::output::LogFiles;

/// How many lines of one source go to the error log in a second.
///
/// LIMIT: a compromised source fills at most about 1 MiB of disk a second, and usual ones stay far below.
const LINES_MAX: u32 = 1000;

/// The length of a line before and behind its text, about.
const HEAD_BYTES: usize = 40;

const SECOND: Duration = Duration::from_secs(1);

/// One source's share of the error log.
#[derive(Debug)]
pub(crate) struct ErrorLogLimiter {
    label: String,
    /// The label as it stands in a line, escaped.
    mark: String,
    /// When the present second began, and how many lines it has had.
    second: Option<(Instant, u32)>,
    suppressed: u64,
    notices: Notices,
    noticed_at: Option<Instant>,
}

/// The logger's report about a source, summed up since the last one.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Records that never arrived.
    pub lost: u64,
    /// Records for a log that is not the source's.
    pub refused: u64,
    /// Batches that were malformed, and how the last one was.
    pub malformed: u64,
    pub malformed_how: String,
    /// Batches with numbers that had been used before.
    pub backwards: u64,
}

impl ErrorLogLimiter {
    pub(crate) fn new(label: &str) -> Self {
        let mut escaped = Vec::new();
        put_text(&mut escaped, label.as_bytes());
        Self {
            label: label.to_owned(),
            mark: String::from_utf8_lossy(&escaped).into_owned(),
            second: None,
            suppressed: 0,
            notices: Notices::default(),
            noticed_at: None,
        }
    }

    /// Adds what the source says to the error log, if it has not said too much in this second.
    pub(crate) fn line(
        &mut self,
        files: &mut LogFiles,
        now: Instant,
        time_us: u64,
        level: Level,
        text: &[u8],
    ) {
        let (since, lines) = match self.second {
            Some((since, lines)) if now < since + SECOND => (since, lines),
            _ => {
                self.report_suppressed(files);
                (now, 0)
            }
        };
        self.second = Some((since, lines.saturating_add(1)));
        if lines < LINES_MAX && files.quotas.take(&self.label, text.len() + self.mark.len() + HEAD_BYTES, now)
        {
            files.event(time_us, level, &self.mark, text);
        } else {
            self.suppressed += 1;
        }
    }

    /// Notes something to be said of the source.
    pub(crate) fn notice(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// When there is something to be said, if there is.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let suppressed = self.second.filter(|_| self.suppressed > 0);
        let suppressed = suppressed.map(|(since, _)| since + SECOND);
        let notices = self.notices.any().then(|| match self.noticed_at {
            Some(at) => at + SECOND,
            None => now,
        });
        suppressed.into_iter().chain(notices).min()
    }

    /// Says what is due.
    pub(crate) fn report(&mut self, files: &mut LogFiles, now: Instant) {
        if self.second.is_none_or(|(since, _)| now >= since + SECOND) {
            self.report_suppressed(files);
        }
        if self.notices.any() && self.noticed_at.is_none_or(|at| now >= at + SECOND) {
            self.noticed_at = Some(now);
            self.report_notices(files);
        }
    }

    /// Says everything, because the source has ended.
    pub(crate) fn finish(&mut self, files: &mut LogFiles) {
        self.report_suppressed(files);
        self.report_notices(files);
    }

    fn report_suppressed(&mut self, files: &mut LogFiles) {
        let count = std::mem::take(&mut self.suppressed);
        if count > 0 {
            self.put(files, &format!("suppressed {count} lines of {}", self.label));
        }
    }

    fn report_notices(&mut self, files: &mut LogFiles) {
        let notices = std::mem::take(&mut self.notices);
        let Notices { lost, refused, malformed, malformed_how, backwards } = notices;
        let label = &self.label;
        if lost > 0 {
            self.put(files, &format!("lost {lost} records of {label}"));
        }
        if refused > 0 {
            let text = format!("refused {refused} records of {label} for the access log of another site");
            self.put(files, &text);
        }
        if malformed > 0 {
            self.put(files, &format!("dropped {malformed} malformed batches of {label}: {malformed_how}"));
        }
        if backwards > 0 {
            let text = format!("{backwards} batches of {label} have numbers that were used before");
            self.put(files, &text);
        }
    }

    fn put(&self, files: &mut LogFiles, text: &str) {
        files.event(now_us(), Level::Warning, "logger", text.as_bytes());
    }
}

impl Notices {
    fn any(&self) -> bool {
        self.lost > 0 || self.refused > 0 || self.malformed > 0 || self.backwards > 0
    }
}

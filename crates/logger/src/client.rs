//! One client of the logger: which records it may write, and which are missing.
//!
//! Runs in: the logger. Sees: batches that a compromised client makes up. Never: lets a client write into the
//! access log of a site that is not its own; drops a client for what it says.

use std::time::Instant;

use wire::log::{Access, Batch, Record};
use wire::{AccessRight, DecodeError};

use crate::error_log_limiter::ErrorLogLimiter;
use crate::output::LogFiles;

/// The logger's state of a client.
#[derive(Debug)]
pub struct LogClient {
    right: AccessRight,
    /// The number that the next record should have; unknown before the first batch, as an earlier logger may
    /// have read those before it.
    next: Option<u64>,
    pub(crate) limiter: ErrorLogLimiter,
}

impl LogClient {
    /// A client that may write to the access logs that `right` names, and to the error log under its label.
    pub fn new(label: &str, right: AccessRight) -> Self {
        Self { right, next: None, limiter: ErrorLogLimiter::new(label) }
    }

    /// Adds the records of a batch to the logs; returns how many it held.
    pub fn take(&mut self, bytes: &[u8], files: &mut LogFiles, now: Instant) -> u64 {
        let batch = match Batch::decode(bytes) {
            Ok(batch) => batch,
            Err(error) => {
                self.malformed(error);
                return 0;
            }
        };
        let first = batch.sequence;
        let mut records = batch.peekable();
        // The number of a batch of which nothing can be read is worth nothing. None at all are good to tell a gap.
        if !matches!(records.peek(), Some(Err(_))) {
            self.follow(first);
        }
        let mut count = 0;
        for record in records {
            match record {
                Ok(record) => self.record(&record, files, now),
                // The unread rest of this batch shows as a gap before the next one.
                Err(error) => {
                    self.malformed(error);
                    break;
                }
            }
            count += 1;
            self.next = self.next.map(|next| next.saturating_add(1));
        }
        count
    }

    /// The sites in whose logs a batch has lines, and whose logs are not open.
    pub fn lacking(&self, bytes: &[u8], files: &LogFiles) -> Vec<u16> {
        if !files.has_unopened() {
            return Vec::new();
        }
        let records = Batch::decode(bytes).into_iter().flatten().map_while(Result::ok);
        let sites = records.filter_map(|record| match record {
            Record::Access(access) if self.may_write(&access) => Some(access.site),
            _ => None,
        });
        sites.filter(|site| files.lacks(*site)).collect()
    }

    /// Says what is due of this client.
    pub fn report(&mut self, files: &mut LogFiles, now: Instant) {
        self.limiter.report(files, now);
    }

    /// Notes that a message was not even a batch.
    pub(crate) fn malformed(&mut self, error: DecodeError) {
        let notices = self.limiter.notice();
        notices.malformed += 1;
        notices.malformed_how = error.to_string();
    }

    /// Compares the number of a batch's first record with the one that is due, which it becomes.
    fn follow(&mut self, sequence: u64) {
        let expected = self.next.replace(sequence).unwrap_or(sequence);
        let notices = self.limiter.notice();
        if sequence > expected {
            notices.lost = notices.lost.saturating_add(sequence - expected);
        } else if sequence < expected {
            notices.backwards += 1;
        }
    }

    fn record(&mut self, record: &Record<'_>, files: &mut LogFiles, now: Instant) {
        match record {
            Record::Access(access) if self.may_write(access) => files.access(access),
            Record::Access(_) => self.limiter.notice().refused += 1,
            Record::Event { time_us, level, text } => self.limiter.line(files, now, *time_us, *level, text),
        }
    }

    fn may_write(&self, access: &Access<'_>) -> bool {
        match self.right {
            AccessRight::None => false,
            AccessRight::Site(site) => site == access.site,
            AccessRight::Every => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::log::{Level, append, begin};

    fn batch(sequence: u64, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(&mut bytes, sequence);
        for _ in 0..count {
            let text = b"x";
            let level = Level::Info;
            append(&mut bytes, &Record::Event { time_us: 0, level, text });
        }
        bytes
    }

    /// The records that are lost, and those that go backwards, after some batches.
    fn gaps(batches: &[Vec<u8>]) -> (u64, u64) {
        let mut client = LogClient::new("a", AccessRight::Site(1));
        for bytes in batches {
            client.take(bytes, &mut LogFiles::default(), Instant::now());
        }
        let notices = client.limiter.notice();
        (notices.lost, notices.backwards)
    }

    #[test]
    fn counts_gaps() {
        assert_eq!(gaps(&[batch(100, 2), batch(102, 1), batch(103, 0)]), (0, 0));
        assert_eq!(gaps(&[batch(0, 2), batch(5, 1), batch(7, 1)]), (4, 0));
        assert_eq!(gaps(&[batch(0, 2), batch(9, 0)]), (7, 0));
        assert_eq!(gaps(&[batch(5, 2), batch(3, 1), batch(4, 1)]), (0, 1));
        assert_eq!(gaps(&[batch(0, 1), batch(u64::MAX, 1), batch(0, 1)]), (u64::MAX - 1, 1));
    }

    #[test]
    fn what_a_malformed_batch_hides_is_a_gap() {
        let mut cut = batch(1, 3);
        cut.pop();
        assert_eq!(gaps(&[batch(0, 1), cut, batch(4, 1)]), (1, 0));
        let garbage = b"\x01nonsense that is long enough".to_vec();
        assert_eq!(gaps(&[batch(0, 1), garbage, batch(4, 1)]), (3, 0));
    }
}

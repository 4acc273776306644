//! One client of the logger: which records it may write, and which are missing.
//!
//! Runs in: the logger. Sees: batches that a compromised client makes up. Never: lets a client write into the
//! access log of a site that is not its own; drops a client for what it says.

use std::time::Instant;

use wire::log::{Access, Batch, Record};
use wire::{DecodeError, NO_PARTITION};

use crate::output::Files;
use crate::voice::Voice;

/// What the logger knows of a client.
#[derive(Debug)]
pub struct Client {
    site: u16,
    /// The number that the next record should have; unknown before the first batch, as an earlier logger may
    /// have read those before it.
    next: Option<u64>,
    pub(crate) voice: Voice,
}

impl Client {
    /// A client that may write to the access log of `site`, or to all of them if that is [`NO_PARTITION`].
    pub fn new(label: &str, site: u16) -> Self {
        Self {
            site,
            next: None,
            voice: Voice::new(label),
        }
    }

    /// Adds the records of a batch to the logs; returns how many it held.
    pub fn take(&mut self, bytes: &[u8], files: &mut Files, now: Instant) -> u64 {
        let batch = match Batch::decode(bytes) {
            Ok(batch) => batch,
            Err(error) => {
                self.malformed(error);
                return 0;
            }
        };
        self.follow(batch.sequence);
        let first = batch.sequence;
        let mut count = 0;
        for record in batch {
            match record {
                Ok(record) => self.record(&record, files, now),
                // What is not read of this batch is seen as a gap before the next one.
                Err(error) => {
                    self.malformed(error);
                    break;
                }
            }
            count += 1;
        }
        self.next = Some(first.saturating_add(count));
        count
    }

    /// Says what is due of this client.
    pub fn say(&mut self, files: &mut Files, now: Instant) {
        self.voice.say(files, now);
    }

    /// Notes that a message was not even a batch.
    pub(crate) fn malformed(&mut self, error: DecodeError) {
        let notices = self.voice.notice();
        notices.malformed += 1;
        notices.malformed_how = error.to_string();
    }

    /// Compares the number of a batch's first record with the one that is due.
    fn follow(&mut self, sequence: u64) {
        let expected = self.next.unwrap_or(sequence);
        let notices = self.voice.notice();
        if sequence > expected {
            notices.lost = notices.lost.saturating_add(sequence - expected);
        } else if sequence < expected {
            notices.backwards += 1;
        }
    }

    fn record(&mut self, record: &Record<'_>, files: &mut Files, now: Instant) {
        match record {
            Record::Access(access) if self.may_write(access) => files.access(access),
            Record::Access(_) => self.voice.notice().refused += 1,
            Record::Event { time_us, level, text } => self.voice.line(files, now, *time_us, *level, text),
        }
    }

    fn may_write(&self, access: &Access<'_>) -> bool {
        self.site == NO_PARTITION || self.site == access.site
    }
}

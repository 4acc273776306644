//! The answer to a call, as its rows come, within what its statements may give.
//!
//! Sees: rows of the database. Never: keeps more than `max_bytes` of a statement, goes on while its service does not
//! read, or says after the end that there is no answer.

use std::thread;
use std::time::Duration;

use statements::{Statement, StatementKind};
use wire::data::{CallFault, PART_MAX, ResultWriter};

use crate::catalog::CatalogEntry;
use crate::job::{Job, Wait};

/// How soon a call that waits until its service has read looks again: the service has megabytes to read meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// There is no answer, and the service has been told so.
#[derive(Debug)]
pub(crate) struct ErrorSent;

/// An answer that is being written.
pub(crate) struct AnswerWriter<'j> {
    job: &'j Job,
    bytes: Vec<u8>,
    /// All that was sent before.
    sent: usize,
    /// The statement whose rows come.
    step: usize,
    /// Rows of it, and bytes before it.
    rows: u32,
    before: usize,
}

impl<'j> AnswerWriter<'j> {
    pub(crate) fn new(job: &'j Job) -> Self {
        Self { job, bytes: Vec::new(), sent: 0, step: 0, rows: 0, before: 0 }
    }

    /// A statement that gives no rows has been carried out.
    pub(crate) fn changed(&mut self, rows: u64) {
        ResultWriter::columns(&[], &mut self.bytes);
        ResultWriter::end(rows, &mut self.bytes);
    }

    /// The rows of a statement, by its number, are to come.
    pub(crate) fn begin(&mut self, step: usize, columns: &[&str]) {
        ResultWriter::columns(columns, &mut self.bytes);
        (self.step, self.rows, self.before) = (step, 0, self.length());
    }

    /// Begins a row; whether the statement wants one: a `:one` that has its row does not.
    pub(crate) fn begin_row(&mut self) -> Result<bool, ErrorSent> {
        let Statement { kind, max_rows, .. } = *self.statement();
        if kind == StatementKind::One && self.rows == 1 {
            return Ok(false);
        }
        self.rows += 1;
        if self.rows > max_rows {
            return self.stop(CallFault::TooLarge, format!("it has more than {max_rows} rows"));
        }
        ResultWriter::row(&mut self.bytes);
        Ok(true)
    }

    /// Where the values of a row go.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends a row, and sends what fills messages.
    pub(crate) fn end_row(&mut self) -> Result<(), ErrorSent> {
        let max_bytes = self.statement().max_bytes;
        if self.length() - self.before > max_bytes as usize {
            return self.stop(CallFault::TooLarge, format!("it has more than {max_bytes} bytes"));
        }
        if self.is_sent_in_parts() {
            self.send_parts();
        }
        Ok(())
    }

    /// Waits until the service has read enough to get more.
    pub(crate) async fn has_room(&self) -> Result<(), ErrorSent> {
        let mut wait = None;
        while self.must_wait(&mut wait)? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// The same, for a thread that may stand still.
    pub(crate) fn wait_for_room(&self) -> Result<(), ErrorSent> {
        let mut wait = None;
        while self.must_wait(&mut wait)? {
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Whether the service has to read first. The call's time goes on meanwhile.
    fn must_wait(&self, wait: &mut Option<Wait>) -> Result<bool, ErrorSent> {
        if !self.is_sent_in_parts() || !self.job.must_wait() {
            return Ok(false);
        }
        if wait.get_or_insert_with(|| self.job.wait()).is_over(self.job) {
            return self.stop(CallFault::Busy, "the service does not read its answers".into());
        }
        Ok(true)
    }

    /// No more rows of the statement come.
    pub(crate) fn end_rows(&mut self) {
        ResultWriter::end(0, &mut self.bytes);
    }

    /// Sends the end. The call's changes hold now: nothing may fail here.
    pub(crate) fn end(mut self) {
        self.send_parts();
        self.job.done(self.bytes);
    }

    /// Whether the statement at hand only reads: what is left of its rows need not be seen.
    pub(crate) fn only_reads(&self) -> bool {
        self.job.catalog.reads[self.step]
    }

    /// Whether rows are sent before the end: parts of what may not hold in the end are sent with the end.
    fn is_sent_in_parts(&self) -> bool {
        self.only_reads() && matches!(self.job.call, CatalogEntry::Statement(_))
    }

    fn statement(&self) -> &'j Statement {
        &self.job.catalog.file.statements[self.step]
    }

    /// All bytes, those that were sent included.
    fn length(&self) -> usize {
        self.sent + self.bytes.len()
    }

    fn send_parts(&mut self) {
        while self.bytes.len() > PART_MAX {
            let rest = self.bytes.split_off(PART_MAX);
            let part = std::mem::replace(&mut self.bytes, rest);
            self.sent += part.len();
            self.job.part(part);
        }
    }

    fn stop<T>(&self, fault: CallFault, reason: String) -> Result<T, ErrorSent> {
        self.job.fail(fault, reason);
        Err(ErrorSent)
    }
}

//! One call of a service: what is asked, by when, and where its answer goes.
//!
//! Sees: values that fit their parameters. Never: makes more of answers while the service has not read what there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use statements::Statement;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use wire::data::{CallFault, UNREAD_MAX, Value};

use crate::catalog::{Call, Catalog};

/// A part of an answer, or its end.
#[derive(Debug)]
pub enum Reply {
    /// More follows.
    Part(u32, Vec<u8>),
    /// The last part.
    Done(u32, Vec<u8>),
    /// There is no answer.
    Failed(u32, CallFault, String),
}

impl Reply {
    /// Bytes that count as unread.
    pub fn length(&self) -> usize {
        match self {
            Self::Part(_, bytes) | Self::Done(_, bytes) => bytes.len(),
            Self::Failed(..) => 0,
        }
    }
}

/// What a service has not read yet of its answers, in bytes.
#[derive(Debug, Default)]
pub struct Budget(AtomicI64);

impl Budget {
    /// Counts bytes that are on their way.
    pub(crate) fn take(&self, bytes: usize) {
        self.0.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Whether the service has to read before there is more.
    pub fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) > UNREAD_MAX as i64
    }

    /// Bytes have been sent; whether there was no room for others before, and is now.
    pub fn give_back(&self, bytes: usize) -> bool {
        let before = self.0.fetch_sub(bytes as i64, Ordering::Relaxed);
        let most = UNREAD_MAX as i64;
        before > most && before - bytes as i64 <= most
    }
}

/// One call.
#[derive(Debug)]
pub struct Job {
    /// The number that the service has given it.
    pub id: u32,
    /// What is called, of which statements.
    pub call: Call,
    /// The statements that held when it came.
    pub catalog: Arc<Catalog>,
    /// Its parameters, which fit.
    pub values: Vec<Value>,
    /// By when it must be done.
    pub deadline: Instant,
    /// Whether nobody wants the answer any more.
    pub cancelled: CancellationToken,
    /// Where answers go.
    pub replies: UnboundedSender<Reply>,
    /// What of them is unread.
    pub budget: Arc<Budget>,
    /// Whether the service wants no more rows for now.
    pub paused: Arc<AtomicBool>,
}

impl Job {
    /// Whether the call is to be carried out, now that it is its turn; if not, the service is told why.
    pub fn begins(&self) -> bool {
        if self.cancelled.is_cancelled() {
            self.fail(CallFault::Late, "it was cancelled before its turn");
        } else if Instant::now() >= self.deadline {
            self.fail(CallFault::Late, "it has waited too long for its turn");
        } else {
            return true;
        }
        false
    }

    /// Whether it can have its turn: it makes an answer that the service has room for, or none.
    pub(crate) fn is_ready(&self) -> bool {
        !self.budget.is_spent() || self.cancelled.is_cancelled()
    }

    /// Whether the service has to read, or to ask for more, before there are more rows.
    pub(crate) fn must_wait(&self) -> bool {
        self.budget.is_spent() || self.paused.load(Ordering::Relaxed)
    }

    /// Bytes of its parameters.
    pub(crate) fn length(&self) -> usize {
        let length = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            Value::Null | Value::Int(_) | Value::Real(_) => size_of::<u64>(),
        };
        self.values.iter().map(length).sum()
    }

    /// Its statements, each with its values.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let mut values = &self.values[..];
        self.catalog.steps(&self.call).iter().map(move |&number| {
            let about = &self.catalog.file.statements[number];
            let (own, rest) = values.split_at(about.parameters.len());
            values = rest;
            Step { number, about, values: own, only_reads: self.catalog.reads[number] }
        })
    }

    /// Whether a statement needs no transaction: it holds, or not, as a whole. One that changes rows and gives rows has to be undone
    /// if these are too many.
    pub(crate) fn holds_by_itself(&self, number: usize) -> bool {
        self.catalog.reads[number] || !self.catalog.file.statements[number].kind.has_rows()
    }

    /// Sends an answer, or a part of one.
    pub fn reply(&self, reply: Reply) {
        self.budget.take(reply.length());
        let _ = self.replies.send(reply);
    }

    /// Says that there is no answer.
    pub fn fail(&self, fault: CallFault, reason: impl Into<String>) {
        self.reply(Reply::Failed(self.id, fault, reason.into()));
    }
}

/// One statement of a call.
pub(crate) struct Step<'a> {
    /// Its number in the file.
    pub(crate) number: usize,
    /// What the file says of it.
    pub(crate) about: &'a Statement,
    /// The values of its parameters, which fit.
    pub(crate) values: &'a [Value],
    /// Whether it only reads.
    pub(crate) only_reads: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_answers_are_counted() {
        let budget = Budget::default();
        budget.take(UNREAD_MAX);
        assert!(!budget.is_spent());
        budget.take(1);
        assert!(budget.is_spent());
        assert!(budget.give_back(1));
        assert!(!budget.is_spent());
        assert!(!budget.give_back(1));
    }
}

//! One call of a service: what is asked, by when, and where its answer goes.
//!
//! Sees: values that fit their parameters. Never: makes more of answers while the service has not read what there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use statements::Statement;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use wire::data::{CallFault, SEND_TIMEOUT, UNREAD_MAX, Value};

use crate::catalog::{Catalog, CatalogEntry};

/// A part of an answer, or its end.
#[derive(Debug)]
pub enum AnswerPart {
    /// More follows.
    Part(u32, Vec<u8>),
    /// The last part.
    Done(u32, Vec<u8>),
    /// There is no answer.
    Failed(u32, CallFault, String),
}

impl AnswerPart {
    /// Bytes that count as unread.
    pub fn length(&self) -> usize {
        match self {
            Self::Part(_, bytes) | Self::Done(_, bytes) => bytes.len(),
            Self::Failed(..) => 0,
        }
    }
}

/// The bytes of answers that a service has not read yet, and whether it reads at all.
#[derive(Debug, Default)]
pub struct Budget {
    unread: AtomicI64,
    read: AtomicU64,
    is_stuck: AtomicBool,
}

impl Budget {
    /// Counts bytes that are on their way.
    pub(crate) fn take(&self, bytes: usize) {
        self.unread.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Whether the service has to read before there is more.
    pub fn is_spent(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > UNREAD_MAX as i64
    }

    /// Bytes have been sent; whether there was no room for others before, and is now.
    pub fn give_back(&self, bytes: usize) -> bool {
        let before = self.unread.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        self.is_stuck.store(false, Ordering::Relaxed);
        let most = UNREAD_MAX as i64;
        before > most && before - bytes as i64 <= most
    }
}

/// A call that stands still until its service has read.
#[derive(Debug)]
pub(crate) struct Wait {
    since: Instant,
    read: u64,
}

impl Wait {
    /// Whether the call is given up: its time is over, its answer is not wanted any more, or the service has read
    /// nothing for too long.
    pub(crate) fn is_over(&mut self, job: &Job) -> bool {
        let (budget, now) = (&job.replies.budget, Instant::now());
        let read = budget.read.load(Ordering::Relaxed);
        if read != self.read {
            *self = Self { since: now, read };
        }
        // One that is paused for somebody else is given up by whoever has paused it.
        if budget.is_spent() && now.duration_since(self.since) >= SEND_TIMEOUT {
            budget.is_stuck.store(true, Ordering::Relaxed);
        }
        budget.is_stuck.load(Ordering::Relaxed) || job.cancelled.is_cancelled() || now >= job.deadline
    }
}

/// One call.
#[derive(Debug)]
pub struct Job {
    /// The number that the service has given it.
    pub id: u32,
    /// The called statement or transaction.
    pub call: CatalogEntry,
    /// The statements that held when it came.
    pub catalog: Arc<Catalog>,
    /// Its parameters, which fit.
    pub values: Vec<Value>,
    /// By when it must be done.
    pub deadline: Instant,
    /// Whether nobody wants the answer any more.
    pub cancelled: CancellationToken,
    /// Where its answer goes.
    pub replies: Replies,
}

/// How far a call has come: it waits, is carried out, has begun to be on disk, or has its end.
const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const HOLDS: u8 = 2;
const ENDED: u8 = 3;
/// It is carried out, and a part of its answer has been sent.
const PARTLY: u8 = 4;

/// Where the answer of a call goes, and when.
///
/// INVARIANT: a call has one end. A service that got two would close its channel, which others may use as well. A
/// service that is told before its change holds that there is no answer can rely on that nothing changes:
/// [`Replies::may_hold`].
#[derive(Clone, Debug)]
pub struct Replies {
    to: UnboundedSender<AnswerPart>,
    budget: Arc<Budget>,
    paused: Arc<AtomicBool>,
    state: Arc<AtomicU8>,
}

impl Replies {
    /// An answer that counts as unread in `budget`, and of which no more is wanted while it is `paused`.
    pub fn new(to: UnboundedSender<AnswerPart>, budget: Arc<Budget>, paused: Arc<AtomicBool>) -> Self {
        Self { to, budget, paused, state: Arc::new(AtomicU8::new(WAITS)) }
    }

    /// Sends a part or the end, unless the end was sent before.
    fn send(&self, reply: AnswerPart) {
        let before = match reply {
            AnswerPart::Part(..) => {
                self.go_on(BEGUN, PARTLY);
                self.state.load(Ordering::SeqCst)
            }
            AnswerPart::Done(..) | AnswerPart::Failed(..) => self.state.swap(ENDED, Ordering::SeqCst),
        };
        if before != ENDED {
            self.budget.take(reply.length());
            let _ = self.to.send(reply);
        }
    }

    fn go_on(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether what the call has changed may hold: nobody was told that it is over.
    pub(crate) fn may_hold(&self) -> bool {
        self.go_on(BEGUN, HOLDS) || self.holds()
    }

    /// Whether what the call has changed holds, or is about to.
    pub(crate) fn holds(&self) -> bool {
        self.state.load(Ordering::SeqCst) == HOLDS
    }

    /// Ends a call whose time is over, whoever has it now.
    pub(crate) fn give_up(&self, id: u32) {
        let (fault, reason) = match self.state.swap(ENDED, Ordering::SeqCst) {
            WAITS => (CallFault::Busy, "others kept it waiting for its turn as long as it may take"),
            BEGUN | PARTLY => (CallFault::Late, "it took too long"),
            HOLDS => (CallFault::Lost, "what it has changed was not on disk in time, and may be so later"),
            _ => return,
        };
        let _ = self.to.send(AnswerPart::Failed(id, fault, reason.to_owned()));
    }
}

impl Job {
    /// Whether the call is to be carried out, now that it is its turn; if not, the service is told why.
    pub fn begins(&self) -> bool {
        if self.cancelled.is_cancelled() {
            self.fail(CallFault::Late, "it was cancelled before its turn");
        } else if Instant::now() >= self.deadline {
            self.replies.give_up(self.id);
        } else {
            return self.replies.go_on(WAITS, BEGUN);
        }
        false
    }

    /// Whether it can be carried out once more: nothing of its answer was sent, and there is time.
    pub(crate) fn can_begin_again(&self) -> bool {
        let state = self.replies.state.load(Ordering::SeqCst);
        matches!(state, WAITS | BEGUN) && !self.cancelled.is_cancelled() && Instant::now() < self.deadline
    }

    /// Whether it can have its turn: it makes an answer that the service has room for, or none.
    pub(crate) fn is_ready(&self) -> bool {
        !self.replies.budget.is_spent() || self.cancelled.is_cancelled()
    }

    /// Whether the service has to read, or to ask for more, before there are more rows.
    pub(crate) fn must_wait(&self) -> bool {
        self.replies.budget.is_spent() || self.replies.paused.load(Ordering::Relaxed)
    }

    /// It begins to stand still.
    pub(crate) fn wait(&self) -> Wait {
        Wait { since: Instant::now(), read: self.replies.budget.read.load(Ordering::Relaxed) }
    }

    /// The operator's name for it.
    pub(crate) fn name(&self) -> &str {
        match self.call {
            CatalogEntry::Statement(number) => &self.catalog.file.statements[number].name,
            CatalogEntry::Transaction(number) => &self.catalog.file.transactions[number].name,
        }
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
    pub(crate) fn steps(&self) -> impl Iterator<Item = CallStep<'_>> {
        let mut values = &self.values[..];
        self.catalog.steps(&self.call).iter().map(move |&number| {
            let about = &self.catalog.file.statements[number];
            let (own, rest) = values.split_at(about.parameters.len());
            values = rest;
            CallStep { number, about, values: own, only_reads: self.catalog.reads[number] }
        })
    }

    /// Whether a statement needs no transaction: it holds, or not, as a whole. One that changes rows and gives rows has
    /// to be undone if these are too many.
    pub(crate) fn holds_by_itself(&self, number: usize) -> bool {
        self.catalog.reads[number] || !self.catalog.file.statements[number].kind.has_rows()
    }

    /// Sends a part of the answer.
    pub(crate) fn part(&self, bytes: Vec<u8>) {
        self.replies.send(AnswerPart::Part(self.id, bytes));
    }

    /// Sends the last part of the answer.
    pub(crate) fn done(&self, bytes: Vec<u8>) {
        self.replies.send(AnswerPart::Done(self.id, bytes));
    }

    /// Says that there is no answer, unless the service knows already.
    pub fn fail(&self, fault: CallFault, reason: impl Into<String>) {
        self.replies.send(AnswerPart::Failed(self.id, fault, reason.into()));
    }
}

/// One statement of a call.
pub(crate) struct CallStep<'a> {
    /// Its number in the file.
    pub(crate) number: usize,
    /// The statement in the file.
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
    fn a_call_has_one_end() {
        let (to, mut answers) = tokio::sync::mpsc::unbounded_channel();
        let replies = Replies::new(to, Arc::default(), Arc::default());
        replies.send(AnswerPart::Part(1, vec![1]));
        replies.send(AnswerPart::Failed(1, CallFault::Busy, "first".into()));
        replies.send(AnswerPart::Failed(1, CallFault::Late, "second".into()));
        replies.send(AnswerPart::Done(1, vec![2]));
        replies.send(AnswerPart::Part(1, vec![3]));
        assert!(matches!(answers.try_recv(), Ok(AnswerPart::Part(1, part)) if part == [1]));
        assert!(matches!(answers.try_recv(), Ok(AnswerPart::Failed(1, CallFault::Busy, _))));
        assert!(answers.try_recv().is_err());
        assert!(!replies.may_hold());
    }

    #[test]
    fn who_is_given_up_hears_what_is_true() {
        for (steps, fault) in [(0, CallFault::Busy), (1, CallFault::Late), (2, CallFault::Lost)] {
            let (to, mut answers) = tokio::sync::mpsc::unbounded_channel();
            let replies = Replies::new(to, Arc::default(), Arc::default());
            assert!(steps == 0 || replies.go_on(WAITS, BEGUN));
            assert!(steps < 2 || replies.may_hold() && replies.may_hold());
            replies.give_up(5);
            assert!(!replies.may_hold() && !replies.go_on(WAITS, BEGUN));
            replies.send(AnswerPart::Done(5, vec![1]));
            assert!(matches!(answers.try_recv(), Ok(AnswerPart::Failed(5, found, _)) if found == fault));
            assert!(answers.try_recv().is_err());
        }
    }

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

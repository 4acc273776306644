//! Where an answer goes: whole to who waits for it, or part by part to who passes it on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;
use wire::data::CallFault;

use super::DataError;

/// LIMIT: bytes of one answer that is kept; a statement may give 256 MiB, and a proxy that sends more is not what it
/// should be.
const ANSWER_BYTES_MAX: usize = 257 << 20;

/// The outcome of a call that is passed on.
#[derive(Debug)]
pub enum Passed {
    /// A part of the answer; more follows.
    Part(Vec<u8>),
    /// The last part.
    Done(Vec<u8>),
    /// There is no answer, also if parts of it have come.
    Failed(DataError),
}

/// Whether whoever passes a call on wants more of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The next part.
    More,
    /// More, but not before [`PassedOn::resume`](super::PassedOn::resume).
    MoreLater,
    /// Nothing but the end.
    Nothing,
}

/// See the file's head.
pub(crate) enum ReplyReceiver {
    /// Somebody waits.
    Whole(oneshot::Sender<Result<Vec<u8>, DataError>>, Vec<u8>),
    /// Somebody passes on what comes, and says what more is wanted; unless the call was cancelled.
    Parts(Box<dyn FnMut(Passed) -> Wants + Send>, Arc<AtomicBool>),
}

/// The outcome of receiving a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// The caller's current wish for more parts.
    Wants(Wants),
    /// No proxy sends so much.
    TooMuch,
}

impl ReplyReceiver {
    /// Whether nobody waits any more.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Whole(waiting, _) => waiting.is_closed(),
            Self::Parts(_, is_cancelled) => is_cancelled.load(Ordering::Relaxed),
        }
    }

    pub(super) fn part(&mut self, part: Vec<u8>) -> PartOutcome {
        match self {
            Self::Whole(_, answer) => {
                answer.extend(part);
                if answer.len() > ANSWER_BYTES_MAX {
                    PartOutcome::TooMuch
                } else {
                    PartOutcome::Wants(Wants::More)
                }
            }
            Self::Parts(take, _) => PartOutcome::Wants(take(Passed::Part(part))),
        }
    }

    pub(super) fn done(self, last: Vec<u8>) {
        match self {
            Self::Whole(waiting, mut answer) => {
                answer.extend(last);
                let _ = waiting.send(Ok(answer));
            }
            Self::Parts(mut take, _) => {
                take(Passed::Done(last));
            }
        }
    }

    /// It was cancelled before it was made.
    pub(super) fn cancelled(self) {
        let reason = "it was cancelled before it was made".to_owned();
        self.fail(DataError::Failed { fault: CallFault::Late, reason });
    }

    pub(super) fn fail(self, error: DataError) {
        match self {
            Self::Whole(waiting, _) => drop(waiting.send(Err(error))),
            Self::Parts(mut take, _) => {
                take(Passed::Failed(error));
            }
        }
    }
}

impl std::fmt::Debug for ReplyReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

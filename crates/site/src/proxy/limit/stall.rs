//! Whether a lent place stands still: since when its client is waited for, and the word that it is taken back.
//!
//! Untrusted input: when a client moves bytes. Must never: hold a place, or keep an exchange that it ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

/// See the file's head; clones are of the same place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stall(Arc<Mutex<StallState>>);

#[derive(Debug, Default)]
struct StallState {
    /// Since when the client, and not the backend, is waited for.
    since: Option<Instant>,
    given_up: bool,
    /// LIMIT: whoever sends the answer, and whoever passes the body on.
    wakers: [Option<Waker>; 2],
}

/// The side that waits until it is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Answer = 0,
    Body = 1,
}

impl Stall {
    fn inner(&self) -> MutexGuard<'_, StallState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client is waited for, from now on, if it was not before.
    pub fn begin(&self) {
        self.inner().since.get_or_insert_with(Instant::now);
    }

    /// The client has moved.
    pub fn end(&self) {
        self.inner().since = None;
    }

    /// Since when the client is waited for, of a place that was not taken back yet.
    pub fn since(&self) -> Option<Instant> {
        let inner = self.inner();
        inner.since.filter(|_| !inner.given_up)
    }

    /// Takes the place back: whoever works on the exchange ends it.
    pub fn give_up(&self) {
        let mut inner = self.inner();
        inner.given_up = true;
        inner.wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    /// Ready once the place was taken back.
    pub fn poll_given_up(&self, cx: &mut Context<'_>, side: Side) -> Poll<()> {
        let mut inner = self.inner();
        if inner.given_up {
            return Poll::Ready(());
        }
        match &mut inner.wakers[side as usize] {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Whether it is the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

//! Turns: what one client sends is not to keep the others of its worker waiting.
//!
//! Untrusted input: none. Must never: end a turn of somebody who is not polled again.

use std::pin::pin;
use std::task::{Context, Poll};

use tokio::task::yield_now;

/// Ends the turn of a task that has more to do: it is polled again once the runtime has looked at all sockets and has
/// had all others polled. Never ready.
pub(crate) fn end<T>(cx: &mut Context<'_>) -> Poll<T> {
    // INVARIANT: it waits when it is polled for the first time, and has `cx` woken.
    let _ = pin!(yield_now()).poll(cx);
    Poll::Pending
}

//! hyper's timers on the clock of our runtime.
//!
//! Runs in: a service's worker. Sees no untrusted bytes. Never: blocks.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Timers of the current runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer;

struct Sleep(Pin<Box<tokio::time::Sleep>>);

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl hyper::rt::Sleep for Sleep {}

/// A limit to how long something may make no progress; no limit without a duration.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Option<Duration>,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Stall {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, sleep: None }
    }

    /// Notes progress.
    pub(crate) fn reset(&mut self) {
        self.sleep = None;
    }

    /// Ready when the limit has passed since progress was last noted.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        sleep.as_mut().poll(cx)
    }
}

//! hyper's timers on the clock of our runtime.
//!
//! Runs in: a service's worker. Sees no untrusted bytes. Never: blocks.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use conditioning::{MinRate, Pace};

/// Bytes a second that a client has to move, once it is waited for: as `[conditioning]` without keys. The launcher does
/// not tell services another one.
const MIN_RATE: u32 = 500;

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

/// A limit to how slowly a client may move bytes; no limit without a duration.
///
/// Each piece may take that long, and the time that its bytes take at [`MIN_RATE`]; no byte at all must take as long.
/// Only the time counts in which the client is waited for.
#[derive(Debug)]
pub(crate) struct StallTimer {
    limit: Option<Duration>,
    pace: Pace,
    /// The time on a clock that only runs while the client is waited for.
    clock: Instant,
    /// Since when it is waited for.
    since: Option<Instant>,
    stall: Stall,
}

impl StallTimer {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        let clock = Instant::now();
        let pace = Pace::new(MinRate::new(MIN_RATE, limit.unwrap_or_default()), clock);
        Self { limit, pace, clock, since: None, stall: Stall::new(limit) }
    }

    /// The client has moved so many bytes.
    pub(crate) fn moved(&mut self, count: usize) {
        self.stall.reset();
        if let Some(since) = self.since.take() {
            self.clock += since.elapsed();
        }
        self.pace.moved(count as u64, self.clock);
    }

    /// The client is waited for; ready when it has been too slow.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.limit.is_some() && self.since.is_none() {
            let now = Instant::now();
            self.since = Some(now);
            let left = self.pace.deadline().map(|at| at.saturating_duration_since(self.clock));
            // The shorter of both.
            self.stall = Stall::new(left.into_iter().chain(self.limit).min());
        }
        self.stall.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Moves `count` bytes every 20 ms for a second; whether that was too slow. The limit is 200 ms.
    async fn too_slow(count: usize) -> bool {
        let mut timeout = StallTimer::new(Some(Duration::from_millis(200)));
        for _ in 0..50 {
            let next = tokio::time::Instant::now() + Duration::from_millis(20);
            let wait = poll_fn(|cx| timeout.poll(cx));
            if tokio::time::timeout_at(next, wait).await.is_ok() {
                return true;
            }
            timeout.moved(count);
        }
        false
    }

    #[test]
    fn a_byte_now_and_then_is_not_enough() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            assert!(too_slow(0).await);
            // 50 bytes a second.
            assert!(too_slow(1).await);
            // 2000 bytes a second.
            assert!(!too_slow(40).await);
        });
    }

    #[test]
    fn what_is_not_waited_for_has_no_limit() {
        let mut timeout = StallTimer::new(Some(Duration::from_millis(500)));
        std::thread::sleep(Duration::from_millis(600));
        timeout.moved(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut unlimited = StallTimer::new(None);
            let wait = poll_fn(|cx| unlimited.poll(cx));
            assert!(tokio::time::timeout(Duration::from_millis(30), wait).await.is_err());
            let wait = poll_fn(|cx| timeout.poll(cx));
            assert!(tokio::time::timeout(Duration::from_millis(100), wait).await.is_err());
        });
    }
}

//! Waiting for the end of an exchange, as long as its client is there, and fast enough.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: when a client moves bytes, and goes. Must never:
//! wait for a client that takes nothing.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::connection::socket::expired;
use crate::context::WaitReason;
use crate::http1::state::ExchangeState;
use crate::proxy::limit::Side;

/// LIMIT: how often we look for a client that disconnected behind bytes that nobody reads, of its body or of a next
/// request. epoll does not report the close while unread bytes precede it.
const GONE_LOOK: Duration = Duration::from_secs(1);

/// How long it matters that a client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchUntil {
    /// Until its response is over: somebody else works on that.
    ToTheEnd,
    /// Until its response begins.
    UntilAnswered,
    /// Not at all.
    Never,
}

impl WatchUntil {
    /// A client that stops sending may still be reading, so only what others work on is given up for it.
    pub fn of(waits: WaitReason) -> Self {
        match waits {
            WaitReason::Backend => WatchUntil::ToTheEnd,
            WaitReason::Password => WatchUntil::UntilAnswered,
            WaitReason::Never => WatchUntil::Never,
        }
    }

    fn is_on(self, state: &ExchangeState) -> bool {
        match self {
            WatchUntil::ToTheEnd => true,
            WatchUntil::UntilAnswered => state.status.get() == 0,
            WatchUntil::Never => false,
        }
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeOutcome {
    Answered,
    Broken,
    /// The client took the response too slowly.
    Slow,
}

/// Polls `exchange` until it is over, or the client is gone or too slow; `watch` says how long the former matters, as
/// soon as the exchange waits.
pub(super) async fn drive(
    mut exchange: Pin<&mut impl Future<Output = io::Result<()>>>,
    state: &ExchangeState,
    watch: impl Fn() -> WatchUntil,
) -> ExchangeOutcome {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let mut visible = true;
    poll_fn(|cx| {
        state.set_task(cx);
        let mut asked = false;
        loop {
            if let Poll::Ready(result) = exchange.as_mut().poll(cx) {
                return Poll::Ready(if result.is_ok() {
                    ExchangeOutcome::Answered
                } else {
                    ExchangeOutcome::Broken
                });
            }
            let watch = watch();
            let sent = [state.poll_interim(cx), state.poll_unsent(cx)];
            let is_broken = sent.iter().any(|sent| matches!(sent, Poll::Ready(Err(_))));
            if is_broken || state.cut.get() || (watch.is_on(state) && is_gone(cx, state, &mut visible)) {
                return Poll::Ready(ExchangeOutcome::Broken);
            }
            let stall = state.stall.borrow();
            if stall.as_ref().is_some_and(|stall| stall.poll_given_up(cx, Side::Answer).is_ready()) {
                return Poll::Ready(ExchangeOutcome::Slow);
            }
            drop(stall);
            let Some(next) = next_look(state, watch, visible) else {
                return Poll::Pending;
            };
            if !expired(cx, &mut timer, next) {
                return Poll::Pending;
            }
            // The kernel was asked once more.
            let is_late = state.output.takes.deadline().is_some_and(|at| at <= Instant::now());
            if asked && is_late {
                return Poll::Ready(ExchangeOutcome::Slow);
            }
            if std::mem::replace(&mut asked, true) {
                // There is nothing to write after all.
                state.output.probe.set(None);
            }
        }
    })
    .await
}

/// Whether the client has gone. Bytes that have come and are not read hide its end: of its body, or a next request,
/// which makes that not `visible` any more.
fn is_gone(cx: &mut Context<'_>, state: &ExchangeState, visible: &mut bool) -> bool {
    let gone = state.with_io(|exchange_io| match exchange_io.is_complete() && *visible {
        true => exchange_io.stream.poll_gone(cx, visible),
        false => exchange_io.stream.is_closed(),
    });
    gone.unwrap_or_default()
}

/// When to look next whether the client is too slow, or has gone behind what nobody takes.
fn next_look(state: &ExchangeState, watch: WatchUntil, visible: bool) -> Option<Instant> {
    let hidden = !state.is_delivered() || !visible;
    let gone = (watch.is_on(state) && hidden).then(|| Instant::now() + GONE_LOOK);
    [gone, state.output.next_look()].into_iter().flatten().min()
}

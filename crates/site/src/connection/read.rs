//! Waiting for a client: for its next head, or the rest of one.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: when a client sends. Must never: wait without a
//! deadline, or keep a connection idle that must make room.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::ReadBuf;

use crate::connection::socket::{ConnectionSocket, expired, is_set};
use crate::connection::state::{ClientConnection, NextStep};
use crate::connection::stream::ClientStream;
use crate::head::HeadRefusal;

/// LIMIT: how long a worker that retires waits for the first request on a connection under TLS, which nobody else can
/// go on with: its client has not heard yet that there will be an end.
const FIRST_REQUEST: Duration = Duration::from_secs(5);
/// LIMIT: how long such a worker waits for one more request on a connection under TLS that has had some. Its answer
/// says that it is the last: a client that asks all the time hears of the end by it, and not by a connection that is
/// gone.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// The outcome of a wait.
enum ReadOutcome {
    Read(usize),
    Gone,
    Late,
    Drained,
    MustGo,
}

impl ClientConnection<'_> {
    /// Waits for bytes, the deadline, or the end of the worker.
    pub(super) async fn wait(&mut self, mut drained: Pin<&mut impl Future<Output = ()>>) -> NextStep {
        let limits = self.site.worker.limits();
        let idle = self.preread.is_empty();
        let deadline = self.since + if idle { limits.idle_timeout } else { limits.head_timeout };
        let Some(mut stream) = self.lend() else {
            return NextStep::Close;
        };
        if !self.is_owed() {
            self.slot.mark_idle();
        }
        let waited = poll_fn(|cx| self.poll_wait(cx, &mut stream, drained.as_mut(), deadline)).await;
        self.slot.mark_busy();
        self.socket = Some(ConnectionSocket::Registered(stream));
        match waited {
            ReadOutcome::Read(count) => {
                self.arrived = Instant::now();
                let site = self.site;
                self.digest(&site.scratch.borrow()[..count])
            }
            ReadOutcome::Drained => NextStep::HandBack,
            ReadOutcome::Late if !idle => self.refusal(HeadRefusal::Late, None),
            ReadOutcome::Late if self.is_leaving() => NextStep::Leave,
            ReadOutcome::Late | ReadOutcome::Gone | ReadOutcome::MustGo => NextStep::Close,
        }
    }

    /// Whether a request is on its way that the worker which relays has for us: a pair has one.
    fn is_owed(&self) -> bool {
        self.conn.relayed.is_some() && !self.begun.get()
    }

    /// Whether it is of use to nobody but this worker, which retires.
    pub(super) fn is_leaving(&self) -> bool {
        self.conn.tls && self.conn.relayed.is_none() && self.site.worker.receiver.draining()
    }

    /// Until when a request is waited for on a connection that [is leaving](Self::is_leaving).
    fn leaves_at(&self) -> Instant {
        let since = self.site.worker.receiver.drains_since().unwrap_or(self.since);
        if self.begun.get() { since.max(self.since) + LAST_REQUEST } else { self.since + FIRST_REQUEST }
    }

    fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut ClientStream,
        drained: Pin<&mut impl Future<Output = ()>>,
        deadline: Instant,
    ) -> Poll<ReadOutcome> {
        // A read that does not fill the buffer makes tokio wait for readiness before the next: no read is
        // tried in vain.
        let mut scratch = self.site.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match stream.poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                return Poll::Ready(ReadOutcome::Read(buffer.filled().len()));
            }
            Poll::Ready(_) => return Poll::Ready(ReadOutcome::Gone),
            Poll::Pending => {}
        }
        if self.slot.must_go() {
            return Poll::Ready(ReadOutcome::MustGo);
        }
        // INVARIANT: where the timer is set, an earlier wait has polled it and `drained`, and left its waker with the
        // seat; all of them wake this task. A relayed connection has one wait, or two.
        let is_watched = self.conn.relayed.is_none() && is_set(&self.timer, deadline);
        let is_draining = self.site.worker.receiver.draining();
        if is_watched && !is_draining {
            return Poll::Pending;
        }
        self.slot.wake(cx);
        let is_awaited = self.is_leaving();
        if !is_awaited && !self.is_owed() && drained.poll(cx).is_ready() {
            return Poll::Ready(ReadOutcome::Drained);
        }
        let deadline = if is_awaited { deadline.min(self.leaves_at()) } else { deadline };
        if expired(cx, &mut self.timer, deadline) { Poll::Ready(ReadOutcome::Late) } else { Poll::Pending }
    }
}

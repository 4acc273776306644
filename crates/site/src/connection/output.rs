//! Sends to a client through the runtime, and watches how fast the client takes it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: how fast the client reads. Must never: believe
//! epoll alone about whether a slow client has taken anything.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::connection::min_rate::TransferPace;
use crate::connection::stream::ClientStream;

/// The sending side of a connection.
pub(crate) struct SendBuffer {
    /// How fast the client takes what is sent.
    pub takes: Rc<TransferPace>,
    /// When the kernel is to be asked whether there is room for more, whatever epoll says.
    pub probe: Cell<Option<Instant>>,
    /// Bytes written.
    pub written: Cell<u64>,
}

impl SendBuffer {
    /// To a client that takes what is sent at this pace.
    pub fn new(takes: Rc<TransferPace>) -> Self {
        Self { takes, probe: Cell::default(), written: Cell::default() }
    }

    /// When the client will have been too slow, or the kernel is to be asked; `None` while nobody waits for the client.
    pub fn next_look(&self) -> Option<Instant> {
        self.takes.deadline().map(|at| self.probe.get().map_or(at, |probe| at.min(probe)))
    }

    /// Notes how a write went, of which the kernel took `moved` bytes. A write for which epoll sees no room is to be
    /// tried all the same once it is time to: whether it is.
    fn wrote<T>(&self, polled: &Poll<io::Result<T>>, moved: usize) -> bool {
        if moved > 0 || matches!(polled, Poll::Ready(Ok(_))) {
            self.probe.set(None);
            self.takes.moved(moved);
        }
        if polled.is_ready() {
            return false;
        }
        self.takes.wait();
        let now = Instant::now();
        match self.probe.get() {
            Some(at) if now < at => false,
            before => {
                self.probe.set(Some(self.takes.probe(now)));
                // The runtime knows nothing of a socket that it has just got.
                before.is_some() || self.written.get() == 0
            }
        }
    }

    /// Writes some of `slices`, without asking the runtime where that is called for; tells how many bytes.
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        stream: &mut ClientStream,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut moved = 0;
        let mut polled = stream.poll_write_vectored(cx, slices, &mut moved);
        if self.wrote(&polled, moved) {
            moved = 0;
            if let Ok(count) = stream.try_write_vectored(slices, &mut moved) {
                polled = Poll::Ready(Ok(count));
            }
            if moved > 0 {
                self.wrote(&polled, moved);
                // Where there was room that epoll does not report, there may be more: what is taken piece by piece
                // would look as if the client took it.
                self.probe.set(Some(Instant::now()));
            }
        }
        if let Poll::Ready(Ok(count)) = polled {
            self.written.set(self.written.get() + count as u64);
        }
        polled
    }

    /// Has the kernel take what is encrypted and waits for it.
    pub fn poll_flush(&self, cx: &mut Context<'_>, stream: &mut ClientStream) -> Poll<io::Result<()>> {
        if !stream.is_tls() {
            return Poll::Ready(Ok(()));
        }
        let mut moved = 0;
        let mut polled = stream.poll_flush(cx, &mut moved);
        if self.wrote(&polled, moved) {
            moved = 0;
            if stream.try_write_vectored(&[], &mut moved).is_ok() {
                polled = Poll::Ready(Ok(()));
            }
            if moved > 0 {
                self.wrote(&polled, moved);
            }
        }
        polled
    }
}

//! A stream, for whoever answers it.
//!
//! Untrusted input: none that it looks at. Must never: give out a byte twice, or wait for what cannot come.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::connection::Connection;
use crate::head::Http2Head;
use crate::state::StreamState;
use crate::{Reason, frame, hpack};

/// A connection with its streams.
pub type SharedConnection = Rc<RefCell<Connection>>;

/// The client has reset the stream, or has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamReset;

impl std::fmt::Display for StreamReset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client has reset the stream, or has gone")
    }
}

impl std::error::Error for StreamReset {}

/// A stream. The client is told when it is dropped before its answer is whole.
#[derive(Debug)]
pub struct Stream {
    shared: SharedConnection,
    id: u32,
    /// Whether the body of the request was read to its end.
    is_read: Cell<bool>,
}

/// A header block, appended to `block`.
fn encode(mut block: Vec<u8>, status: Option<StatusCode>, headers: &HeaderMap) -> Vec<u8> {
    if let Some(status) = status {
        hpack::status(&mut block, status.as_u16());
    }
    for (name, value) in headers {
        hpack::field(&mut block, name.as_str().as_bytes(), value.as_bytes());
    }
    block
}

impl Stream {
    /// That of the request which was just received.
    pub fn open(shared: &SharedConnection, head: &Http2Head) -> Self {
        let mut connection = shared.borrow_mut();
        let (receive, send) = connection.new_windows();
        let state = StreamState::new(receive, send, head.is_whole(), head.length);
        connection.insert(head.stream, state);
        Self { shared: shared.clone(), id: head.stream, is_read: Cell::new(head.is_whole()) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut StreamState) -> T) -> Option<T> {
        self.shared.borrow_mut().state(self.id).map(act)
    }

    /// The next bytes of the request's body; nothing at the end.
    pub fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamReset>>> {
        if self.is_read.get() {
            return Poll::Ready(None);
        }
        let polled = self.with(|state| match (state.received.is_empty(), state.is_received) {
            (false, _) => Poll::Ready(Some(Ok(std::mem::take(&mut state.received).freeze()))),
            (true, true) => Poll::Ready(None),
            (true, false) => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        });
        let polled = polled.unwrap_or(Poll::Ready(Some(Err(StreamReset))));
        self.is_read.set(self.is_read.get() || self.is_end_stream());
        polled
    }

    /// Lets the client send as many bytes again.
    pub fn release(&self, bytes: usize) {
        self.shared.borrow_mut().release_of(self.id, bytes);
    }

    /// Whether the body of the request was read to its end.
    pub fn is_end_stream(&self) -> bool {
        let is_end = |state: &mut StreamState| state.is_received && state.received.is_empty();
        self.is_read.get() || self.with(is_end).unwrap_or(false)
    }

    /// Ready once the client has reset the stream, or has gone.
    pub fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.with(|state| state.writer = Some(cx.waker().clone())) {
            Some(()) => Poll::Pending,
            None => Poll::Ready(()),
        }
    }

    /// Sends the head of an answer, or of one that comes before it; with `ends`, nothing follows.
    ///
    /// # Errors
    /// The stream is gone.
    pub fn send_head(&self, status: StatusCode, headers: &HeaderMap, ends: bool) -> Result<(), StreamReset> {
        let mut connection = self.shared.borrow_mut();
        connection.state(self.id).filter(|state| !state.is_finished).ok_or(StreamReset)?;
        let block = encode(connection.block_start(), Some(status), headers);
        connection.send_block(self.id, ends, &block);
        if ends {
            connection.note_progress(Instant::now());
        }
        connection.wake();
        Ok(())
    }

    /// Sends what comes after the body.
    ///
    /// # Errors
    /// The stream is gone.
    pub fn send_trailers(&self, trailers: &HeaderMap) -> Result<(), StreamReset> {
        let mut connection = self.shared.borrow_mut();
        let state = connection.state(self.id).filter(|state| !state.is_finished).ok_or(StreamReset)?;
        state.trailers = Some(encode(Vec::new(), None, trailers).into());
        state.is_finished = true;
        connection.enqueue(self.id);
        Ok(())
    }

    /// How many bytes of the body the client, and we, have room for; waits until there is some. Nothing once the stream
    /// is gone.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let most = self.shared.borrow().send_bytes();
        let polled = self.with(|state| {
            let window = usize::try_from(state.send_window).unwrap_or(0);
            let room = most.min(window).saturating_sub(state.pending_bytes);
            if room > 0 {
                return Poll::Ready(Some(room));
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        });
        polled.unwrap_or(Poll::Ready(None))
    }

    /// Sends a piece of the body, for which there is room; with `ends`, the last.
    ///
    /// # Errors
    /// The stream is gone.
    pub fn send_data(&self, data: Bytes, ends: bool) -> Result<(), StreamReset> {
        let mut connection = self.shared.borrow_mut();
        let state = connection.state(self.id).filter(|state| !state.is_finished).ok_or(StreamReset)?;
        state.push(data);
        state.is_finished = ends;
        connection.enqueue(self.id);
        Ok(())
    }

    /// Tells the client that nothing more comes, for this reason.
    pub fn reset(&self, reason: Reason) {
        let mut connection = self.shared.borrow_mut();
        if connection.state(self.id).is_some() {
            connection.reset(self.id, reason);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut connection = self.shared.borrow_mut();
        let Some(state) = connection.state(self.id) else { return };
        state.is_held = false;
        let unread = std::mem::take(&mut state.received).len();
        connection.release_of(self.id, unread);
        connection.settle(self.id);
    }
}

impl Connection {
    fn insert(&mut self, id: u32, state: StreamState) {
        self.streams.insert(id, Box::new(state));
        self.open += 1;
    }

    fn state(&mut self, id: u32) -> Option<&mut StreamState> {
        self.streams.get_mut(&id).map(|state| &mut **state)
    }

    fn send_bytes(&self) -> usize {
        self.limits.send_bytes
    }

    fn send_block(&mut self, id: u32, ends: bool, block: &[u8]) {
        frame::headers(&mut self.out, id, ends, block);
        if ends && let Some(state) = self.state(id) {
            (state.is_finished, state.is_sent) = (true, true);
        }
        self.settle(id);
    }
}

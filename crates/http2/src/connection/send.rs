//! Sends frames in their order: short ones go at once, bodies in turns of a frame each.
//!
//! Untrusted input: the windows of clients. Must never: send more than the windows allow, or let one stream keep the
//! others waiting.

use std::task::{Context, Waker};
use std::time::Instant;

use conditioning::http2::StreamEvent;

use super::{Connection, DEFAULT_WINDOW, GoAwayState, LEAVING, RESETS_KEPT};
use crate::Reason;
use crate::count::WORTH_BYTES;
use crate::frame::{self, END_HEADERS, END_STREAM, FRAME_BYTES, HEAD_BYTES};
use crate::head::Http2Head;

/// LIMIT: bytes of answers that may go out at once.
const ANSWERS_BYTES: usize = 64 << 10;

impl Connection {
    /// Whether an answer with so many bytes can go out at once.
    pub fn has_room(&self, bytes: usize) -> bool {
        let count = bytes as i64;
        self.out.len() + bytes <= ANSWERS_BYTES
            && count <= self.send_window
            && count <= self.initial_window
            && self.failed.is_none()
    }

    /// Answers the request that was just received, whole; [`Connection::has_room`] has said that there is room. `block`
    /// writes the header block, of less than 16 KiB.
    pub fn answer(&mut self, head: &Http2Head, body: &[u8], now: Instant, block: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        let flags = if body.is_empty() { END_STREAM | END_HEADERS } else { END_HEADERS };
        frame::head(&mut self.out, frame::HEADERS, flags, head.stream, 0);
        let prefix = self.block_start();
        self.out.extend_from_slice(&prefix);
        block(&mut self.out);
        let [_, a, b, c] = ((self.out.len() - start - HEAD_BYTES) as u32).to_be_bytes();
        self.out[start..start + 3].copy_from_slice(&[a, b, c]);
        self.send_window -= body.len() as i64;
        let mut pieces = body.chunks(FRAME_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_STREAM } else { 0 };
            frame::head(&mut self.out, frame::DATA, flags, head.stream, piece.len());
            self.out.extend_from_slice(piece);
        }
        self.note_progress(now);
    }

    /// The beginning of a header block.
    pub(crate) fn block_start(&mut self) -> Vec<u8> {
        // A table of no bytes (RFC 7541 6.3).
        if std::mem::take(&mut self.announces_no_table) { vec![0x20] } else { Vec::new() }
    }

    pub(crate) fn note_progress(&mut self, now: Instant) {
        let _ = self.abuse.note(StreamEvent::Progress, now);
    }

    /// Makes frames of what streams have to send, in turns, until there are so many bytes.
    pub fn fill(&mut self, bytes: usize, now: Instant) {
        while self.out.len() < bytes && self.failed.is_none() {
            let Some(id) = self.ready.pop_front() else { return };
            let Some(state) = self.streams.get_mut(&id) else { continue };
            state.is_queued = false;
            if !state.has_frame() {
                continue;
            }
            let window = usize::try_from(self.send_window).unwrap_or(0);
            if state.pending_bytes > 0 && window == 0 {
                state.is_queued = true;
                self.ready.push_front(id);
                return;
            }
            let mut count = 0;
            if state.pending_bytes > 0 || state.trailers.is_none() {
                count = state.write_data(id, window, &mut self.out);
            }
            self.send_window -= count as i64;
            if state.pending_bytes == 0
                && let Some(block) = state.trailers.take()
            {
                frame::headers(&mut self.out, id, true, &block);
                state.is_sent = true;
            }
            let is_worth = state.is_sent || count > WORTH_BYTES;
            if state.has_frame() {
                state.is_queued = true;
                self.ready.push_back(id);
            }
            state.wake_writer();
            if is_worth {
                self.note_progress(now);
            }
            self.settle(id);
        }
    }

    /// The bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// So many bytes were sent.
    pub fn sent(&mut self, bytes: usize) {
        if bytes == self.out.len() {
            self.out.clear();
        } else {
            self.out.drain(..bytes);
        }
    }

    /// Gets a buffer for what is to be sent, which is to be had back with the next call.
    pub fn swap_buffer(&mut self, spare: &mut Vec<u8>) {
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, spare);
            self.out.clear();
        }
    }

    /// Has whoever polls the connection woken when there is something to be sent.
    pub fn set_waker(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            Waker::wake_by_ref(waker);
        }
    }

    /// Puts a stream into the queue of those that have something to send.
    pub(crate) fn enqueue(&mut self, id: u32) {
        if let Some(state) = self.streams.get_mut(&id)
            && !state.is_queued
            && state.has_frame()
        {
            state.is_queued = true;
            self.ready.push_back(id);
        }
        self.wake();
    }

    /// Tells the client that bytes of a body were read, once these are many.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.released += bytes as u32;
        if self.released >= self.limits.connection_window / 2 {
            frame::window_update(&mut self.out, 0, self.released);
            self.receive_window += i64::from(self.released);
            self.released = 0;
            self.wake();
        }
    }

    /// As [`Connection::release`], also for the stream.
    pub(crate) fn release_of(&mut self, id: u32, bytes: usize) {
        self.release(bytes);
        let Some(state) = self.streams.get_mut(&id).filter(|state| !state.is_received) else { return };
        state.released += bytes as u32;
        if state.released >= self.limits.stream_window / 2 {
            frame::window_update(&mut self.out, id, state.released);
            state.receive_window += i64::from(state.released);
            state.released = 0;
            self.wake();
        }
    }

    /// Lets go of a stream that is over, once nobody holds it.
    pub(crate) fn settle(&mut self, id: u32) {
        let Some(state) = self.streams.get_mut(&id) else { return };
        if state.is_over() && std::mem::take(&mut state.is_open) {
            self.open -= 1;
        }
        if state.is_held {
            return;
        }
        if state.is_over() {
            self.forget(id);
        } else if state.is_sent {
            // RFC 9113 8.1: the answer is whole, and nobody wants the rest of the request.
            self.reset(id, Reason::NO_ERROR);
        } else if !state.is_finished {
            self.reset(id, Reason::CANCEL);
        }
    }

    /// Forgets a stream, which is over or was reset.
    pub(crate) fn forget(&mut self, id: u32) {
        let Some(mut state) = self.streams.remove(&id) else { return };
        if state.is_open {
            self.open -= 1;
        }
        state.wake();
        self.release(state.received.len());
        if self.is_over() {
            self.wake();
        }
    }

    /// Tells the client that a stream is over.
    pub(crate) fn reset(&mut self, id: u32, reason: Reason) {
        self.forget(id);
        self.note_reset(id);
        if self.failed.is_none() {
            frame::reset(&mut self.out, id, reason);
            self.wake();
        }
    }

    pub(super) fn note_reset(&mut self, id: u32) {
        if self.resets.len() == RESETS_KEPT {
            self.resets.pop_front();
        }
        self.resets.push_back(id);
    }

    /// Refuses the request that was just received: it is none.
    pub fn refuse_malformed(&mut self, head: &Http2Head, now: Instant) {
        self.provoke(head.stream, Reason::PROTOCOL_ERROR, now);
    }

    /// Resets a stream because of what the client did, and counts that.
    pub(super) fn provoke(&mut self, id: u32, reason: Reason, now: Instant) {
        self.reset(id, reason);
        self.provoked += 1;
        if let Err(excess) = self.abuse.note(StreamEvent::Provoked, now) {
            self.excess.get_or_insert(excess);
        }
        if self.provoked > self.limits.provoked {
            self.excess.get_or_insert(conditioning::http2::Excess::Provoked);
        }
    }

    /// Ends the connection: nothing more is received, and nothing sent but the reason.
    pub fn fail(&mut self, reason: Reason) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(reason);
        frame::go_away(&mut self.out, self.last, reason);
        self.ready.clear();
        for state in self.streams.values_mut() {
            state.wake();
        }
        self.streams.clear();
        self.open = 0;
    }

    /// Asks the client to open no more streams.
    pub fn leave(&mut self) {
        if self.leaving == GoAwayState::No && self.failed.is_none() {
            self.leaving = GoAwayState::Asked;
            // RFC 9113 6.8: those that are on their way are still answered.
            frame::go_away(&mut self.out, 0x7fff_ffff, Reason::NO_ERROR);
            frame::ping(&mut self.out, 0, LEAVING);
        }
    }

    pub(super) fn tell_to_leave(&mut self) {
        self.leaving = GoAwayState::Told;
        frame::go_away(&mut self.out, self.last, Reason::NO_ERROR);
    }

    /// The window of a new stream of the client's.
    pub(crate) fn new_windows(&self) -> (i64, i64) {
        (i64::from(self.limits.stream_window.max(DEFAULT_WINDOW)), self.initial_window)
    }
}

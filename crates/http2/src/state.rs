//! One stream, as its connection knows it.
//!
//! Untrusted input: none that it looks at. Must never: have a buffer with nothing in it.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{Bytes, BytesMut};

use crate::frame::{self, END_STREAM, FRAME_BYTES};

/// A stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    /// Bytes that the client may still send.
    pub receive_window: i64,
    /// Bytes that were read, and of which the client does not know yet.
    pub released: u32,
    /// Bytes that have come and were not read.
    pub received: BytesMut,
    /// Whether nothing more comes.
    pub is_received: bool,
    /// Bytes of the announced length that are still to come.
    pub left: Option<u64>,
    pub reader: Option<Waker>,
    /// Bytes that the client takes; below nothing after a change of its settings.
    pub send_window: i64,
    pending: VecDeque<Bytes>,
    /// Bytes to be sent.
    pub pending_bytes: usize,
    /// The block of the trailers, which are to be sent last.
    pub trailers: Option<Box<[u8]>>,
    /// Whether what is to be sent is all.
    pub is_finished: bool,
    /// Whether all is sent.
    pub is_sent: bool,
    /// Whether it is in the queue of those that have something to send.
    pub is_queued: bool,
    pub writer: Option<Waker>,
    /// Whether somebody answers it.
    pub is_held: bool,
    /// Whether it counts as open.
    pub is_open: bool,
}

impl StreamState {
    pub fn new(receive_window: i64, send_window: i64, is_received: bool, left: Option<u64>) -> Self {
        Self {
            receive_window,
            released: 0,
            received: BytesMut::new(),
            is_received,
            left,
            reader: None,
            send_window,
            pending: VecDeque::new(),
            pending_bytes: 0,
            trailers: None,
            is_finished: false,
            is_sent: false,
            is_queued: false,
            writer: None,
            is_held: true,
            is_open: true,
        }
    }

    pub fn is_over(&self) -> bool {
        self.is_received && self.is_sent
    }

    pub fn push(&mut self, data: Bytes) {
        self.pending_bytes += data.len();
        if !data.is_empty() {
            self.pending.push_back(data);
        }
    }

    /// Whether there is a frame to be sent that needs no window, or one for which there is some.
    pub fn has_frame(&self) -> bool {
        match self.pending_bytes {
            0 => self.is_finished && !self.is_sent,
            _ => self.send_window > 0,
        }
    }

    /// Writes one DATA frame of at most `window` bytes; tells how many. The end of the stream goes with the last.
    pub fn write_data(&mut self, id: u32, window: usize, out: &mut Vec<u8>) -> usize {
        let own = usize::try_from(self.send_window).unwrap_or(0);
        let count = self.pending_bytes.min(own).min(window).min(FRAME_BYTES);
        let ends = count == self.pending_bytes && self.is_finished && self.trailers.is_none();
        frame::head(out, frame::DATA, if ends { END_STREAM } else { 0 }, id, count);
        let mut left = count;
        while left > 0 {
            // INVARIANT: `pending` holds `pending_bytes`.
            let Some(front) = self.pending.front_mut() else { break };
            let piece = front.split_to(left.min(front.len()));
            out.extend_from_slice(&piece);
            left -= piece.len();
            if front.is_empty() {
                self.pending.pop_front();
            }
        }
        self.pending_bytes -= count;
        self.send_window -= count as i64;
        self.is_sent = ends;
        count
    }

    pub fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    pub fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    pub fn wake(&mut self) {
        self.wake_reader();
        self.wake_writer();
    }
}

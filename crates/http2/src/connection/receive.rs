//! Handles the frames of a client.
//!
//! Untrusted input: frames. Must never: take more than the windows, or more streams than the limit.
//!
//! Source: RFC 9113 5, 6.

use std::time::Instant;

use super::{Block, Connection, GoAwayState, LEAVING, ProtocolFault, WINDOW_MAX};
use crate::Reason;
use crate::count;
use crate::frame::{self, FrameHead};
use crate::head::Http2Head;
use crate::hpack;

type FrameResult = Result<bool, ProtocolFault>;

const PROTOCOL: ProtocolFault = ProtocolFault::Connection(Reason::PROTOCOL_ERROR);
const SIZE: ProtocolFault = ProtocolFault::Connection(Reason::FRAME_SIZE_ERROR);
const FLOW: ProtocolFault = ProtocolFault::Connection(Reason::FLOW_CONTROL_ERROR);

/// The number of which a frame consists.
fn number(payload: &[u8]) -> Result<u32, ProtocolFault> {
    payload.try_into().map(u32::from_be_bytes).map_err(|_| SIZE)
}

/// The payload without its padding.
fn unpadded(frame: FrameHead, payload: &[u8]) -> Result<&[u8], ProtocolFault> {
    if !frame.has(frame::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(SIZE)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(PROTOCOL)?;
    Ok(&rest[..length])
}

/// Whether a stream is to depend on itself.
fn depends_on_itself(stream: u32, priority: &[u8]) -> bool {
    priority.first_chunk().is_some_and(|on| u32::from_be_bytes(*on) & 0x7fff_ffff == stream)
}

impl Connection {
    pub(super) fn dispatch(
        &mut self,
        frame: FrameHead,
        payload: &[u8],
        head: &mut Http2Head,
        now: Instant,
    ) -> FrameResult {
        let continues = |block: &Block| frame.kind == frame::CONTINUATION && frame.stream == block.stream;
        let is_out_of_place = match &self.block {
            Some(block) => !continues(block),
            None => frame.kind == frame::CONTINUATION,
        };
        if is_out_of_place || (!self.is_settled && (frame.kind != frame::SETTINGS || frame.has(frame::ACK))) {
            return Err(PROTOCOL);
        }
        let is_of_stream = matches!(frame.kind, frame::DATA..=frame::RST_STREAM);
        let is_of_connection = matches!(frame.kind, frame::SETTINGS | frame::PING | frame::GOAWAY);
        if (is_of_stream && frame.stream == 0) || (is_of_connection && frame.stream != 0) {
            return Err(PROTOCOL);
        }
        match frame.kind {
            frame::DATA => {
                let useful = self.data(frame, payload)?;
                if let Err(excess) = count::taken(&mut self.abuse, frame, useful, now) {
                    self.excess.get_or_insert(excess);
                }
                Ok(false)
            }
            frame::HEADERS => self.headers(frame, payload, head, now),
            frame::CONTINUATION => self.continuation(frame, payload, head, now),
            frame::PRIORITY => self.priority(frame, payload).map(|()| false),
            frame::RST_STREAM => {
                number(payload)?;
                self.is_idle(frame.stream)?;
                self.forget(frame.stream);
                Ok(false)
            }
            frame::SETTINGS => self.settings(frame, payload).map(|()| false),
            frame::PUSH_PROMISE => Err(PROTOCOL),
            frame::PING => {
                let payload = payload.try_into().map_err(|_| SIZE)?;
                match frame.has(frame::ACK) {
                    false => frame::ping(&mut self.out, frame::ACK, payload),
                    true if payload == LEAVING && self.leaving == GoAwayState::Asked => self.tell_to_leave(),
                    true => {}
                }
                Ok(false)
            }
            frame::GOAWAY if payload.len() < 8 => Err(SIZE),
            frame::GOAWAY => {
                self.is_client_leaving = true;
                Ok(false)
            }
            frame::WINDOW_UPDATE => self.window_update(frame, payload).map(|()| false),
            _ => Ok(false),
        }
    }

    /// An error if the client has not opened this stream, nor any after it.
    fn is_idle(&self, stream: u32) -> Result<(), ProtocolFault> {
        if stream > self.last || stream.is_multiple_of(2) { Err(PROTOCOL) } else { Ok(()) }
    }

    /// Takes a DATA frame; how many of its bytes somebody wants.
    fn data(&mut self, frame: FrameHead, payload: &[u8]) -> Result<usize, ProtocolFault> {
        let data = unpadded(frame, payload)?;
        let id = frame.stream;
        self.is_idle(id)?;
        self.receive_window -= payload.len() as i64;
        if self.receive_window < 0 {
            return Err(FLOW);
        }
        let closed = Err(ProtocolFault::Stream(id, Reason::STREAM_CLOSED));
        let Some(state) = self.streams.get_mut(&id) else {
            self.release(payload.len());
            return if self.resets.contains(&id) { Ok(0) } else { closed };
        };
        if state.is_received {
            self.release(payload.len());
            return closed;
        }
        state.receive_window -= payload.len() as i64;
        let left = state.left.map(|left| left.checked_sub(data.len() as u64));
        let ends = frame.has(frame::END_STREAM);
        let fault = match left {
            _ if state.receive_window < 0 => Some(Reason::FLOW_CONTROL_ERROR),
            Some(None) => Some(Reason::PROTOCOL_ERROR),
            Some(Some(left)) if ends && left > 0 => Some(Reason::PROTOCOL_ERROR),
            _ => None,
        };
        if let Some(reason) = fault {
            self.release(payload.len());
            return Err(ProtocolFault::Stream(id, reason));
        }
        state.left = left.flatten();
        let unread = match state.is_held {
            true => {
                state.received.extend_from_slice(data);
                payload.len() - data.len()
            }
            false => payload.len(),
        };
        if ends {
            state.is_received = true;
        }
        state.wake_reader();
        self.release_of(id, unread);
        self.settle(id);
        Ok(payload.len() - unread)
    }

    fn priority(&mut self, frame: FrameHead, payload: &[u8]) -> Result<(), ProtocolFault> {
        let reason = match payload.len() {
            5 if depends_on_itself(frame.stream, payload) => Reason::PROTOCOL_ERROR,
            5 => return Ok(()),
            _ => Reason::FRAME_SIZE_ERROR,
        };
        match self.is_idle(frame.stream) {
            Ok(()) => Err(ProtocolFault::Stream(frame.stream, reason)),
            // A stream that there is not cannot be reset.
            Err(_) => Err(ProtocolFault::Connection(reason)),
        }
    }

    fn headers(
        &mut self,
        frame: FrameHead,
        payload: &[u8],
        head: &mut Http2Head,
        now: Instant,
    ) -> FrameResult {
        let mut payload = unpadded(frame, payload)?;
        let (stream, ends) = (frame.stream, frame.has(frame::END_STREAM));
        let mut is_faulty = false;
        if frame.has(frame::HAS_PRIORITY) {
            let (priority, rest) = payload.split_at_checked(5).ok_or(SIZE)?;
            is_faulty = depends_on_itself(stream, priority);
            payload = rest;
        }
        if frame.has(frame::END_HEADERS) {
            return self.fields(Block { stream, ends, is_faulty, bytes: Vec::new() }, payload, head, now);
        }
        self.block = Some(Box::new(Block { stream, ends, is_faulty, bytes: payload.to_vec() }));
        Ok(false)
    }

    /// LIMIT: what is counted bounds the block.
    fn continuation(
        &mut self,
        frame: FrameHead,
        payload: &[u8],
        head: &mut Http2Head,
        now: Instant,
    ) -> FrameResult {
        let Some(mut block) = self.block.take() else { return Err(PROTOCOL) };
        block.bytes.extend_from_slice(payload);
        if !frame.has(frame::END_HEADERS) {
            self.block = Some(block);
            return Ok(false);
        }
        let bytes = std::mem::take(&mut block.bytes);
        self.fields(*block, &bytes, head, now)
    }

    /// Takes a whole header block; whether it is a request.
    fn fields(&mut self, block: Block, bytes: &[u8], head: &mut Http2Head, now: Instant) -> FrameResult {
        let Block { stream, ends, is_faulty, .. } = block;
        if stream.is_multiple_of(2) {
            return Err(PROTOCOL);
        }
        head.begin(stream, ends, self.limits.list_bytes as usize);
        let mut room = std::mem::take(&mut head.room);
        // Decoded even if the fields are then dropped: the table changes with each block.
        let decoded = self.decoder.decode(bytes, &mut room, |name, value| head.push(name, value));
        head.room = room;
        decoded.map_err(|_| ProtocolFault::Connection(Reason::COMPRESSION_ERROR))?;
        if stream <= self.last {
            return self.trailers(stream, ends, head).map(|()| false);
        }
        let first_skipped = self.last + 2;
        if first_skipped < stream {
            self.skipped = (self.last, stream);
        }
        self.last = stream;
        // RFC 9113 6.8: what comes after the last word is not looked at.
        if self.leaving == GoAwayState::Told {
            self.note_reset(stream);
            return Ok(false);
        }
        // No list is shorter than its block, but for a block of changes of the table.
        if head.is_too_large() || bytes.len() > self.limits.list_bytes as usize {
            self.refuse(stream, ends, head.refusal(), now);
            return Ok(false);
        }
        if is_faulty || !head.finish() {
            return Err(ProtocolFault::Stream(stream, Reason::PROTOCOL_ERROR));
        }
        // LIMIT: those that are over are still held until their tasks have seen that.
        if self.open >= self.limits.streams || self.streams.len() >= 2 * self.limits.streams as usize {
            return Err(ProtocolFault::Stream(stream, Reason::REFUSED_STREAM));
        }
        Ok(true)
    }

    fn trailers(&mut self, stream: u32, ends: bool, head: &Http2Head) -> Result<(), ProtocolFault> {
        let (after, before) = self.skipped;
        let Some(state) = self.streams.get_mut(&stream) else {
            return match self.resets.contains(&stream) {
                true => Ok(()),
                // RFC 9113 5.1.1: it was never opened.
                false if after < stream && stream < before => Err(PROTOCOL),
                false => Err(ProtocolFault::Connection(Reason::STREAM_CLOSED)),
            };
        };
        if state.is_received {
            return Err(ProtocolFault::Stream(stream, Reason::STREAM_CLOSED));
        }
        if !ends || head.is_too_large() || !head.is_trailers() || state.left.is_some_and(|left| left > 0) {
            return Err(ProtocolFault::Stream(stream, Reason::PROTOCOL_ERROR));
        }
        state.is_received = true;
        state.wake_reader();
        self.settle(stream);
        Ok(())
    }

    /// Answers a request whose list of fields is too long.
    fn refuse(&mut self, stream: u32, ends: bool, status: u16, now: Instant) {
        let mut block = self.block_start();
        hpack::status(&mut block, status);
        frame::headers(&mut self.out, stream, true, &block);
        self.note_progress(now);
        if !ends {
            self.reset(stream, Reason::NO_ERROR);
        }
    }

    fn settings(&mut self, frame: FrameHead, payload: &[u8]) -> Result<(), ProtocolFault> {
        if frame.has(frame::ACK) {
            return if payload.is_empty() { Ok(()) } else { Err(SIZE) };
        }
        let (settings, []) = payload.as_chunks::<6>() else { return Err(SIZE) };
        for &[a, b, c, d, e, f] in settings {
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                // RFC 7541 4.2: a smaller table is to be confirmed, once.
                1 if value < 4096 => self.announces_no_table = true,
                2 if value > 1 => return Err(PROTOCOL),
                4 => self.set_initial_window(i64::from(value))?,
                // Larger frames than the smallest limit are never sent.
                5 if !(16_384..=16_777_215).contains(&value) => return Err(PROTOCOL),
                _ => {}
            }
        }
        self.is_settled = true;
        frame::head(&mut self.out, frame::SETTINGS, frame::ACK, 0, 0);
        Ok(())
    }

    fn set_initial_window(&mut self, window: i64) -> Result<(), ProtocolFault> {
        if window > WINDOW_MAX {
            return Err(FLOW);
        }
        let change = window - self.initial_window;
        self.initial_window = window;
        for (&id, state) in &mut self.streams {
            state.send_window += change;
            if state.send_window > WINDOW_MAX {
                return Err(FLOW);
            }
            if change > 0 {
                if !state.is_queued && state.has_frame() {
                    state.is_queued = true;
                    self.ready.push_back(id);
                }
                state.wake_writer();
            }
        }
        Ok(())
    }

    fn window_update(&mut self, frame: FrameHead, payload: &[u8]) -> Result<(), ProtocolFault> {
        let more = i64::from(number(payload)? & 0x7fff_ffff);
        let id = frame.stream;
        if id == 0 {
            self.send_window += more;
            return match more {
                0 => Err(PROTOCOL),
                _ if self.send_window > WINDOW_MAX => Err(FLOW),
                _ => Ok(()),
            };
        }
        self.is_idle(id)?;
        if more == 0 {
            return Err(ProtocolFault::Stream(id, Reason::PROTOCOL_ERROR));
        }
        let Some(state) = self.streams.get_mut(&id) else { return Ok(()) };
        state.send_window += more;
        if state.send_window > WINDOW_MAX {
            return Err(ProtocolFault::Stream(id, Reason::FLOW_CONTROL_ERROR));
        }
        state.wake_writer();
        if !state.is_queued && state.has_frame() {
            state.is_queued = true;
            self.ready.push_back(id);
        }
        Ok(())
    }
}

//! Counts the frames of a connection.
//!
//! Untrusted input: heads of frames. Must never: decide what a frame means.

use std::time::Instant;

use conditioning::http2::{Abuse, Excess, StreamEvent};

use crate::frame::{self, FrameHead, HEAD_BYTES};

/// LIMIT: a DATA frame with so little in it, and one with padding at most so long, is not what the connection is for.
pub(crate) const WORTH_BYTES: usize = 256;

/// A shorter DATA frame counts as one of so many bytes, with its head: it costs as much.
const LEAST_BYTES: usize = 32;

/// Whether a DATA frame may be what the connection is for.
pub(crate) fn is_worth(frame: FrameHead) -> bool {
    frame.length > WORTH_BYTES || (frame.length > 0 && !frame.has(frame::PADDED))
}

/// Counts a DATA frame of which somebody wants so many bytes.
pub(crate) fn taken(abuse: &mut Abuse, frame: FrameHead, useful: usize, now: Instant) -> Result<(), Excess> {
    if useful > 0 && is_worth(frame) {
        abuse.note(StreamEvent::Progress, now)?;
    }
    // LIMIT: a frame has fewer bytes.
    let bytes = |count| u32::try_from(count).unwrap_or(u32::MAX);
    let all = (frame.length + HEAD_BYTES).max(LEAST_BYTES);
    abuse.note(StreamEvent::Data { useful: bytes(useful), all: bytes(all) }, now)
}

/// Counts a frame of the client's.
pub(crate) fn received(abuse: &mut Abuse, frame: FrameHead, now: Instant) -> Result<(), Excess> {
    // LIMIT: a frame has fewer bytes.
    let length = u32::try_from(frame.length).unwrap_or(u32::MAX);
    let mut note = |event| abuse.note(event, now);
    match frame.kind {
        // Its useful part is known when it is taken.
        frame::DATA if is_worth(frame) => Ok(()),
        frame::DATA if frame.has(frame::END_STREAM) => Ok(()),
        frame::DATA => note(StreamEvent::EmptyData),
        frame::HEADERS => {
            note(StreamEvent::Opened)?;
            note(StreamEvent::Headers(length))?;
            if frame.has(frame::END_HEADERS) { note(StreamEvent::HeadersEnd) } else { Ok(()) }
        }
        frame::CONTINUATION => {
            note(StreamEvent::Continuation(length))?;
            if frame.has(frame::END_HEADERS) { note(StreamEvent::HeadersEnd) } else { Ok(()) }
        }
        frame::RST_STREAM => note(StreamEvent::Reset),
        // Acknowledgements as well: we send few frames that want one.
        frame::SETTINGS => note(StreamEvent::Settings),
        frame::PING => note(StreamEvent::Ping),
        // PRIORITY, WINDOW_UPDATE, and what nobody knows.
        _ => note(StreamEvent::Adjustment),
    }
}

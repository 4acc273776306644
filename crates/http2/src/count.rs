//! What the frames of a connection count for.
//!
//! Untrusted input: heads of frames. Must never: decide what a frame means.

use std::time::Instant;

use conditioning::http2::{Abuse, Event, Excess};

use crate::frame::{self, FrameHead};

/// LIMIT: a DATA frame with so little in it, and one with padding at most so long, is not what the connection is for.
pub(crate) const WORTH_BYTES: usize = 256;

/// Counts a frame of the client's.
pub(crate) fn received(abuse: &mut Abuse, frame: FrameHead, now: Instant) -> Result<(), Excess> {
    // LIMIT: a frame has fewer bytes.
    let length = u32::try_from(frame.length).unwrap_or(u32::MAX);
    let mut note = |event| abuse.note(event, now);
    match frame.kind {
        frame::DATA if frame.length > WORTH_BYTES || (length > 0 && !frame.has(frame::PADDED)) => {
            note(Event::Progress)
        }
        frame::DATA if frame.has(frame::END_STREAM) => Ok(()),
        frame::DATA => note(Event::EmptyData),
        frame::HEADERS => {
            note(Event::Opened)?;
            note(Event::Headers(length))?;
            if frame.has(frame::END_HEADERS) { note(Event::HeadersEnd) } else { Ok(()) }
        }
        frame::CONTINUATION => {
            note(Event::Continuation(length))?;
            if frame.has(frame::END_HEADERS) { note(Event::HeadersEnd) } else { Ok(()) }
        }
        frame::RST_STREAM => note(Event::Reset),
        frame::SETTINGS if frame.has(frame::ACK) => Ok(()),
        frame::SETTINGS => note(Event::Settings),
        frame::PING if frame.has(frame::ACK) => Ok(()),
        frame::PING => note(Event::Ping),
        // PRIORITY, WINDOW_UPDATE, and what nobody knows.
        _ => note(Event::Adjustment),
    }
}

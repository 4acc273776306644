//! The frames of HTTP/2 as they pass, as far as they must be counted: their heads, and what a reset is for.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what a client sends, before the library reads it.
//! Must never: decide what a frame means, change a byte, or keep more than the head of one frame.
//!
//! The library bounds some of what a client can do with frames that are legal; the rest is bounded here. RFC 9113 4.1.

use std::time::Instant;

use conditioning::http2::{Abuse, Event, Excess};

/// Bytes of a frame's head.
const HEAD_BYTES: usize = 9;
/// Bytes of the reason in a RST_STREAM.
const REASON_BYTES: usize = 4;
/// Bytes that a client sends before its first frame.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// LIMIT: a DATA frame with so little in it, and one with padding at most so long, is not what the connection is for.
const WORTH_BYTES: u32 = 256;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: u8,
    pub flags: u8,
    /// Bytes after the head.
    pub length: u32,
    /// Of a RST_STREAM.
    pub reason: u32,
}

/// Finds the frames in one direction.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// Bytes to be passed over before the next head.
    skip: u32,
    head: [u8; HEAD_BYTES + REASON_BYTES],
    have: usize,
}

impl Scanner {
    /// For a direction whose first frame comes after so many bytes.
    pub fn after(skip: u32) -> Self {
        Self { skip, ..Self::default() }
    }

    /// Looks at the next bytes, however they are cut.
    pub fn scan(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Frame)) {
        loop {
            let skipped = bytes.len().min(self.skip as usize);
            self.skip -= skipped as u32;
            bytes = &bytes[skipped..];
            if self.skip > 0 {
                return;
            }
            let wanted = self.wanted();
            let count = bytes.len().min(wanted - self.have);
            self.head[self.have..self.have + count].copy_from_slice(&bytes[..count]);
            self.have += count;
            bytes = &bytes[count..];
            if self.have < self.wanted() {
                if bytes.is_empty() {
                    return;
                }
                continue;
            }
            let frame = self.frame();
            self.skip = frame.length - (self.have - HEAD_BYTES) as u32;
            self.have = 0;
            seen(frame);
        }
    }

    /// Bytes of the head, and of the reason, if there is one.
    fn wanted(&self) -> usize {
        let reset = self.have >= HEAD_BYTES && self.head[3] == 3 && self.length() >= REASON_BYTES as u32;
        if reset { HEAD_BYTES + REASON_BYTES } else { HEAD_BYTES }
    }

    fn length(&self) -> u32 {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]])
    }

    fn frame(&self) -> Frame {
        let [_, _, _, kind, flags, _, _, _, _, a, b, c, d] = self.head;
        let reason = if self.have > HEAD_BYTES { u32::from_be_bytes([a, b, c, d]) } else { 0 };
        Frame { kind, flags, length: self.length(), reason }
    }
}

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// Counts a frame of the client's.
pub(crate) fn received(abuse: &mut Abuse, frame: Frame, now: Instant) -> Result<(), Excess> {
    let Frame { kind, flags, length, .. } = frame;
    let has = |flag: u8| flags & flag != 0;
    let mut note = |event| abuse.note(event, now);
    match kind {
        0 if length > WORTH_BYTES || (length > 0 && !has(PADDED)) => note(Event::Progress),
        0 if has(END_STREAM) => Ok(()),
        0 => note(Event::EmptyData),
        1 => {
            note(Event::Opened)?;
            note(Event::Headers(length))?;
            if has(END_HEADERS) { note(Event::HeadersEnd) } else { Ok(()) }
        }
        9 => {
            note(Event::Continuation(length))?;
            if has(END_HEADERS) { note(Event::HeadersEnd) } else { Ok(()) }
        }
        3 => note(Event::Reset),
        4 if has(ACK) => Ok(()),
        4 => note(Event::Settings),
        6 if has(ACK) => Ok(()),
        6 => note(Event::Ping),
        // PRIORITY, WINDOW_UPDATE, and what nobody knows.
        _ => note(Event::Adjustment),
    }
}

/// Counts a frame of ours.
pub(crate) fn sent(abuse: &mut Abuse, frame: Frame, now: Instant) -> Result<(), Excess> {
    let conn = frame.flags & END_STREAM != 0;
    match frame.kind {
        0 if conn || frame.length > WORTH_BYTES => abuse.note(Event::Progress, now),
        1 if conn => abuse.note(Event::Progress, now),
        // Errors of the client's: of the protocol, of flow control, on a stream that is closed, of a size, refused (it
        // knew how many there may be), of compression.
        3 if matches!(frame.reason, 1 | 3 | 5 | 6 | 7 | 9) => abuse.note(Event::Provoked, now),
        _ => Ok(()),
    }
}

/// The entry for fuzzing: however the bytes are cut, the same frames are found, and they cover them.
pub fn fuzz_frames(data: &[u8]) {
    let find = |step: usize| {
        let (mut scanner, mut frames, mut end) = (Scanner::default(), Vec::new(), 0_usize);
        for piece in data.chunks(step.max(1)) {
            scanner.scan(piece, |frame| {
                end += HEAD_BYTES + frame.length as usize;
                frames.push(frame);
            });
        }
        assert!(end <= data.len() + scanner.skip as usize);
        frames
    };
    let whole = find(data.len());
    let mut abuse = Abuse::new(conditioning::http2::Limits::default());
    for frame in &whole {
        let _ = received(&mut abuse, *frame, Instant::now());
        let _ = sent(&mut abuse, *frame, Instant::now());
    }
    assert!([1, 2, 8, 9, 10, 13].into_iter().all(|step| find(step) == whole));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_frames_in_any_pieces() {
        let mut bytes = PREFACE.to_vec();
        bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
        bytes.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
        bytes.extend([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);
        bytes.extend([0, 0, 2, 0, 1, 0, 0, 0, 1, 7, 7]);
        for step in 1..bytes.len() {
            let (mut scanner, mut frames) = (Scanner::after(PREFACE.len() as u32), Vec::new());
            bytes.chunks(step).for_each(|piece| scanner.scan(piece, |frame| frames.push(frame)));
            let found: Vec<_> = frames.iter().map(|f| (f.kind, f.flags, f.length, f.reason)).collect();
            assert_eq!(found, [(4, 0, 6, 0), (4, 1, 0, 0), (3, 0, 4, 8), (0, 1, 2, 0)], "{step}");
            fuzz_frames(&bytes[24..]);
        }
    }
}

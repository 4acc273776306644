//! Heads of frames, and the frames that we send.
//!
//! Source: RFC 9113 4.1, 6.

use crate::Reason;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const HAS_PRIORITY: u8 = 0x20;

/// Bytes of a frame's head.
pub(crate) const HEAD_BYTES: usize = 9;
/// LIMIT: bytes after the head, in both directions: the protocol's default, which we do not raise.
pub(crate) const FRAME_BYTES: usize = 16 << 10;

/// So many bytes cost as much as a frame without any.
const COST_BYTES: usize = 256;
/// The cost of a request beyond its frames.
const REQUEST_COST: u32 = 16;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    /// Bytes after the head.
    pub length: usize,
}

impl FrameHead {
    /// Of at least [`HEAD_BYTES`].
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes.first_chunk()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // The reserved bit says nothing.
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        Some(Self { kind, flags, stream, length })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The cost of taking it, in units of some ten nanoseconds: some for each frame, however short, as many for each
    /// [`COST_BYTES`], and more for a request, which is answered as well.
    pub fn cost(&self) -> u32 {
        let request = if self.kind == HEADERS { REQUEST_COST } else { 0 };
        // LIMIT: a frame has fewer bytes.
        1 + request + u32::try_from(self.length / COST_BYTES).unwrap_or(u32::MAX / 2)
    }
}

/// Appends the head of a frame.
pub(crate) fn head(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, length: usize) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, d, e, f, g]);
}

/// Appends a header block, in as many frames as it needs.
pub(crate) fn headers(out: &mut Vec<u8>, stream: u32, ends: bool, block: &[u8]) {
    let end_stream = if ends { END_STREAM } else { 0 };
    let mut pieces = block.chunks(FRAME_BYTES).peekable();
    let (mut kind, mut flags) = (HEADERS, end_stream);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= END_HEADERS;
        }
        head(out, kind, flags, stream, piece.len());
        out.extend_from_slice(piece);
        (kind, flags) = (CONTINUATION, 0);
    }
}

/// Appends our settings.
pub(crate) fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    head(out, SETTINGS, 0, 0, 6 * settings.len());
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends a frame that has one number in it.
fn number(out: &mut Vec<u8>, kind: u8, stream: u32, number: u32) {
    head(out, kind, 0, stream, 4);
    out.extend_from_slice(&number.to_be_bytes());
}

pub(crate) fn reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    number(out, RST_STREAM, stream, reason.0);
}

pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    number(out, WINDOW_UPDATE, stream, bytes);
}

pub(crate) fn ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    head(out, PING, flags, 0, payload.len());
    out.extend_from_slice(&payload);
}

pub(crate) fn go_away(out: &mut Vec<u8>, last: u32, reason: Reason) {
    head(out, GOAWAY, 0, 0, 8);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_block_has_several_frames() {
        for length in [1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES] {
            let mut out = Vec::new();
            headers(&mut out, 7, true, &vec![1; length]);
            let (mut at, mut total) = (0, 0);
            while let Some(frame) = FrameHead::parse(&out[at..]) {
                assert_eq!((frame.kind == HEADERS, frame.has(END_STREAM)), (at == 0, at == 0));
                at += HEAD_BYTES + frame.length;
                total += frame.length;
                assert_eq!((frame.stream, frame.has(END_HEADERS)), (7, at == out.len()));
            }
            assert_eq!((at, total), (out.len(), length));
        }
    }
}

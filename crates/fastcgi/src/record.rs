//! FastCGI records: what is written to a server, and what is read of it.
//!
//! Untrusted input: every byte of a FastCGI server. Must never: panic, or keep more than the head of a record in
//! memory.
//!
//! One request at a time on a connection, always with the number 1.

use std::fmt::Display;
use std::io::Write as _;

/// The only version there is.
const VERSION: u8 = 1;
/// The number of every request: they are not multiplexed.
const REQUEST: u16 = 1;
const HEAD_BYTES: usize = 8;
/// LIMIT: bytes of one record of ours; more would need another record anyway (65,535), and this many are whole words.
pub const CONTENT_MAX: usize = 65_528;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const RESPONDER: u8 = 1;
const KEEP_CONNECTION: u8 = 1;

/// The head of a record of ours.
const fn head(kind: u8, content: usize) -> [u8; HEAD_BYTES] {
    let [high, low] = (content as u16).to_be_bytes();
    let [request_high, request_low] = REQUEST.to_be_bytes();
    [VERSION, kind, request_high, request_low, high, low, 0, 0]
}

/// The head of a piece of the request's body, of at most [`CONTENT_MAX`] bytes.
pub const fn stdin_head(length: usize) -> [u8; HEAD_BYTES] {
    head(STDIN, length)
}

/// The end of the request's body.
pub const STDIN_END: [u8; HEAD_BYTES] = stdin_head(0);

/// A part of a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPart<'a> {
    /// Bytes of the answer.
    Stdout(&'a [u8]),
    /// Bytes for the error log.
    Stderr(&'a [u8]),
    /// The request is over; whether the server has taken it at all.
    End {
        /// False if the server was overloaded or did not know what to do.
        complete: bool,
    },
}

/// Bytes that no FastCGI server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the FastCGI server sent {0}")]
pub struct RecordError(pub &'static str);

/// Takes records out of a stream of bytes, which arrive in whatever pieces.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    /// The head of a record, then the content of its end.
    fixed: [u8; HEAD_BYTES],
    filled: usize,
    within: Within,
}

/// Where in a record the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Head,
    Content {
        kind: u8,
        left: usize,
        padding: usize,
    },
    /// Behind the content; an end is told once all of its record has come.
    Padding {
        left: usize,
        end: Option<bool>,
    },
}

impl RecordDecoder {
    /// Whether there is no part of a record.
    pub fn is_empty(&self) -> bool {
        self.within == Within::Head && self.filled == 0
    }

    /// The next part that `data` has something of, which moves on behind that; `None` once all of `data` is taken.
    ///
    /// # Errors
    /// The bytes are none that a FastCGI server sends in answer to this request.
    pub fn take<'a>(&mut self, data: &mut &'a [u8]) -> Result<Option<RecordPart<'a>>, RecordError> {
        loop {
            match &mut self.within {
                Within::Head => {
                    if !self.fill(data) {
                        return Ok(None);
                    }
                    self.within = content_of(self.fixed)?;
                }
                Within::Padding { left, end } => {
                    *left -= split(data, *left).len();
                    let (left, end) = (*left, *end);
                    if left > 0 {
                        return Ok(None);
                    }
                    self.within = Within::Head;
                    if let Some(complete) = end {
                        return Ok(Some(RecordPart::End { complete }));
                    }
                }
                &mut Within::Content { kind: END_REQUEST, padding, .. } => {
                    if !self.fill(data) {
                        return Ok(None);
                    }
                    self.within = Within::Padding { left: padding, end: Some(self.fixed[4] == 0) };
                }
                Within::Content { left: 0, padding, .. } => {
                    self.within = Within::Padding { left: *padding, end: None };
                }
                Within::Content { kind, left, .. } => {
                    let part = split(data, *left);
                    *left -= part.len();
                    return Ok(match *kind {
                        _ if part.is_empty() => None,
                        STDOUT => Some(RecordPart::Stdout(part)),
                        _ => Some(RecordPart::Stderr(part)),
                    });
                }
            }
        }
    }

    /// Takes up to eight bytes; whether they are there.
    fn fill(&mut self, data: &mut &[u8]) -> bool {
        let part = split(data, HEAD_BYTES - self.filled);
        self.fixed[self.filled..self.filled + part.len()].copy_from_slice(part);
        self.filled = (self.filled + part.len()) % HEAD_BYTES;
        self.filled == 0 && !part.is_empty()
    }
}

/// The first `most` bytes of `data`, or as many as there are.
fn split<'a>(data: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (part, rest) = data.split_at(most.min(data.len()));
    *data = rest;
    part
}

/// The content that follows a head.
fn content_of(head: [u8; HEAD_BYTES]) -> Result<Within, RecordError> {
    let [version, kind, request_high, request_low, high, low, padding, _] = head;
    if version != VERSION {
        return Err(RecordError("a record of another version"));
    }
    let content = u16::from_be_bytes([high, low]);
    match (kind, u16::from_be_bytes([request_high, request_low])) {
        (END_REQUEST, REQUEST) if content != 8 => Err(RecordError("an end that is none")),
        (END_REQUEST | STDOUT | STDERR, REQUEST) => {
            Ok(Within::Content { kind, left: content.into(), padding: padding.into() })
        }
        (END_REQUEST | STDOUT | STDERR, _) => Err(RecordError("a record of another request")),
        _ => Err(RecordError("a record that servers do not send")),
    }
}

/// The first records of a request: its beginning, and its parameters as they are added.
#[derive(Debug)]
pub struct Beginning(Vec<u8>);

impl Beginning {
    /// Bytes before the first parameter.
    const BEFORE: usize = 3 * HEAD_BYTES;

    /// A request without parameters.
    pub fn new() -> Self {
        Self::within(Vec::with_capacity(2048))
    }

    /// The same in this room, which is empty.
    pub fn within(mut out: Vec<u8>) -> Self {
        out.extend_from_slice(&head(BEGIN_REQUEST, 8));
        out.extend_from_slice(&[0, RESPONDER, KEEP_CONNECTION, 0, 0, 0, 0, 0]);
        // Its length is written once that is known.
        out.extend_from_slice(&head(PARAMS, 0));
        Self(out)
    }

    /// Adds a parameter, whose value is all of `value`.
    pub fn set(&mut self, name: &str, value: &[&[u8]]) {
        self.add(("", name.bytes()), || value.iter().copied());
    }

    /// Adds a parameter whose value has fewer than 128 bytes.
    pub(crate) fn show(&mut self, name: &str, value: impl Display) {
        self.set(name, &[]);
        let out = &mut self.0;
        let (length, begin) = (out.len() - name.len() - 1, out.len());
        // INVARIANT: a `Vec` takes whatever is written.
        let _ = write!(out, "{value}");
        out[length] = (out.len() - begin) as u8;
    }

    /// Adds a parameter: a name that begins with a prefix, and a value of the parts that `value` gives each time.
    pub(crate) fn add<'a, V: Iterator<Item = &'a [u8]>>(
        &mut self,
        (prefix, name): (&str, impl ExactSizeIterator<Item = u8>),
        value: impl Fn() -> V,
    ) {
        let out = &mut self.0;
        length(out, prefix.len() + name.len());
        length(out, value().map(<[u8]>::len).sum());
        out.extend_from_slice(prefix.as_bytes());
        out.extend(name);
        value().for_each(|part| out.extend_from_slice(part));
    }

    /// The records, with the end of the parameters.
    pub fn finish(self) -> Vec<u8> {
        let Self(mut out) = self;
        match out.len() - Self::BEFORE {
            // An empty record is the end.
            0 => return out,
            length @ 1..=CONTENT_MAX => {
                out[Self::BEFORE - HEAD_BYTES..Self::BEFORE].copy_from_slice(&head(PARAMS, length));
            }
            _ => {
                let parameters = out.split_off(Self::BEFORE);
                out.truncate(Self::BEFORE - HEAD_BYTES);
                for part in parameters.chunks(CONTENT_MAX) {
                    out.extend_from_slice(&head(PARAMS, part.len()));
                    out.extend_from_slice(part);
                }
            }
        }
        out.extend_from_slice(&head(PARAMS, 0));
        out
    }
}

impl Default for Beginning {
    fn default() -> Self {
        Self::new()
    }
}

fn length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 128 => out.push(short),
        // LIMIT: 31 bits, far above the longest head.
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut out = head(kind, content.len()).to_vec();
        out[6] = padding;
        out.extend_from_slice(content);
        out.extend(std::iter::repeat_n(0, padding.into()));
        out
    }

    /// A server's answer, without the places where it was cut.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct ServerOutput {
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        ends: Vec<bool>,
    }

    fn decode(bytes: &[u8], step: usize) -> Result<ServerOutput, RecordError> {
        let (mut decoder, mut said) = (RecordDecoder::default(), ServerOutput::default());
        for mut piece in bytes.chunks(step) {
            while let Some(part) = decoder.take(&mut piece)? {
                match part {
                    RecordPart::Stdout(bytes) => said.stdout.extend_from_slice(bytes),
                    RecordPart::Stderr(bytes) => said.stderr.extend_from_slice(bytes),
                    RecordPart::End { complete } => said.ends.push(complete),
                }
            }
            assert!(piece.is_empty());
        }
        assert!(decoder.is_empty());
        Ok(said)
    }

    #[test]
    fn records_are_the_same_however_they_arrive() {
        let bytes = [
            record(STDOUT, b"hel", 3),
            record(STDERR, b"", 0),
            record(STDERR, b"oh", 255),
            record(STDOUT, b"lo", 0),
            record(STDOUT, b"", 7),
            record(END_REQUEST, &[0, 0, 0, 1, 0, 0, 0, 0], 0),
            record(END_REQUEST, &[0, 0, 0, 0, 2, 0, 0, 0], 3),
        ];
        let expected =
            ServerOutput { stdout: b"hello".into(), stderr: b"oh".into(), ends: vec![true, false] };
        for step in [1, 2, 7, 8, 9, 1000] {
            assert_eq!(decode(&bytes.concat(), step).unwrap(), expected, "{step}");
        }
    }

    /// A connection is kept for the next request only if nothing of a record is left on it.
    #[test]
    fn the_beginning_of_a_record_is_not_nothing() {
        let (mut decoder, bytes) = (RecordDecoder::default(), record(END_REQUEST, &[0; 8], 3));
        assert!(decoder.is_empty());
        for at in 0..bytes.len() {
            let told = decoder.take(&mut &bytes[at..=at]).unwrap();
            let is_last = at + 1 == bytes.len();
            assert_eq!((told.is_some(), decoder.is_empty()), (is_last, is_last), "{at}");
        }
    }

    #[test]
    fn what_is_no_record_is_refused_before_its_content_comes() {
        let heads: [[u8; 8]; 6] = [
            [2, STDOUT, 0, 1, 0, 1, 0, 0],
            [1, STDOUT, 0, 2, 0, 1, 0, 0],
            [1, STDOUT, 0, 0, 0, 1, 0, 0],
            [1, STDIN, 0, 1, 255, 255, 0, 0],
            [1, 11, 0, 0, 0, 8, 0, 0],
            [1, END_REQUEST, 0, 1, 0, 9, 0, 0],
        ];
        for head in heads {
            assert!(decode(&head, 8).is_err(), "{head:?}");
        }
    }

    /// The content of all records from `rest` on, which are parameters, up to the empty one that is the end.
    fn parameters(mut rest: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let length = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
            assert_eq!(rest[1], PARAMS);
            if length == 0 {
                assert_eq!(rest.len(), HEAD_BYTES);
                return content;
            }
            content.extend_from_slice(&rest[8..8 + length]);
            rest = &rest[8 + length..];
        }
    }

    #[test]
    fn long_parameters_are_cut_into_records() {
        let value = vec![b'v'; 200_000];
        let mut beginning = Beginning::new();
        beginning.set("NAME", &[&value[..100_000], &value[100_000..]]);
        let content = parameters(&beginning.finish()[16..]);
        assert_eq!(&content[..9], [4, 0x80, 3, 13, 64, b'N', b'A', b'M', b'E']);
        assert_eq!(content.len(), 9 + value.len());
    }

    #[test]
    fn parameters_have_the_lengths_of_their_parts() {
        assert_eq!(parameters(&Beginning::new().finish()[16..]), b"");
        let mut beginning = Beginning::new();
        beginning.show("PORT", 8080);
        beginning.add(("HTTP_", "x".bytes()), || [&b"a"[..], b", ", b"b"].into_iter());
        assert_eq!(parameters(&beginning.finish()[16..]), b"\x04\x04PORT8080\x06\x04HTTP_xa, b");
    }
}

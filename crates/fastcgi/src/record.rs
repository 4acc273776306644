//! FastCGI records: what is written to a server, and what is read of it.
//!
//! Untrusted input: every byte of a FastCGI server. Must never: panic, or keep more than one record in memory.
//!
//! One request at a time on a connection, always with the number 1.

use bytes::{Buf, Bytes, BytesMut};

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
const RESPONDER: u16 = 1;
const KEEP_CONNECTION: u8 = 1;

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Part of the answer; empty at its end, if the server marks that.
    Stdout(Bytes),
    /// Words for the error log.
    Stderr(Bytes),
    /// The request is over; whether the server has taken it at all.
    End {
        /// False if the server was overloaded or did not know what to do.
        complete: bool,
    },
}

/// What no FastCGI server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the FastCGI server sent {0}")]
pub struct Malformed(pub &'static str);

/// Takes records out of a stream of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: BytesMut,
}

impl Decoder {
    /// Where the next bytes are to be put.
    pub fn room(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Whether there is no part of a record.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next record, if it has arrived as a whole.
    ///
    /// # Errors
    /// The bytes are none that a FastCGI server sends in answer to this request.
    pub fn take(&mut self) -> Result<Option<Record>, Malformed> {
        loop {
            let Some(head) = self.bytes.first_chunk::<HEAD_BYTES>() else {
                return Ok(None);
            };
            let [version, kind, request_high, request_low, high, low, padding, _] = *head;
            if version != VERSION {
                return Err(Malformed("a record of another version"));
            }
            let content = usize::from(u16::from_be_bytes([high, low]));
            let whole = HEAD_BYTES + content + usize::from(padding);
            // What can be known of the head need not wait for the content.
            match (kind, u16::from_be_bytes([request_high, request_low])) {
                (END_REQUEST | STDOUT | STDERR, REQUEST) => {}
                (END_REQUEST | STDOUT | STDERR, _) => return Err(Malformed("a record of another request")),
                _ => return Err(Malformed("a record that servers do not send")),
            }
            if kind == END_REQUEST && content != 8 {
                return Err(Malformed("an end that is none"));
            }
            if self.bytes.len() < whole {
                self.bytes.reserve(whole - self.bytes.len());
                return Ok(None);
            }
            let mut record = self.bytes.split_to(whole);
            record.advance(HEAD_BYTES);
            record.truncate(content);
            let content = record.freeze();
            return Ok(Some(match kind {
                STDOUT => Record::Stdout(content),
                STDERR if content.is_empty() => continue,
                STDERR => Record::Stderr(content),
                _ => Record::End { complete: content.get(4) == Some(&0) },
            }));
        }
    }
}

fn head(out: &mut Vec<u8>, kind: u8, content: usize) {
    let [high, low] = (content as u16).to_be_bytes();
    let [request_high, request_low] = REQUEST.to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, request_high, request_low, high, low, 0, 0]);
}

/// The beginning of a request: its parameters, as pairs of names and values.
pub fn begin<'a>(parameters: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    head(&mut out, BEGIN_REQUEST, 8);
    let [high, low] = RESPONDER.to_be_bytes();
    out.extend_from_slice(&[high, low, KEEP_CONNECTION, 0, 0, 0, 0, 0]);
    let mut pool = Vec::with_capacity(1024);
    for (name, value) in parameters {
        length(&mut pool, name.len());
        length(&mut pool, value.len());
        pool.extend_from_slice(name);
        pool.extend_from_slice(value);
    }
    for part in pool.chunks(CONTENT_MAX) {
        head(&mut out, PARAMS, part.len());
        out.extend_from_slice(part);
    }
    head(&mut out, PARAMS, 0);
    out
}

fn length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 128 => out.push(short),
        // LIMIT: 31 bits, far above the longest head.
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// The head of a piece of the request's body, of at most [`CONTENT_MAX`] bytes; of none for its end.
pub fn stdin_head(length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    head(&mut out, STDIN, length);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut out = Vec::new();
        head(&mut out, kind, content.len());
        out[6] = padding;
        out.extend_from_slice(content);
        out.extend(std::iter::repeat_n(0, padding.into()));
        out
    }

    fn decode(bytes: &[u8], step: usize) -> Result<Vec<Record>, Malformed> {
        let (mut decoder, mut found) = (Decoder::default(), Vec::new());
        for part in bytes.chunks(step) {
            decoder.room().extend_from_slice(part);
            while let Some(record) = decoder.take()? {
                found.push(record);
            }
        }
        Ok(found)
    }

    #[test]
    fn records_are_the_same_however_they_arrive() {
        let end = record(END_REQUEST, &[0, 0, 0, 1, 0, 0, 0, 0], 0);
        let refused = record(END_REQUEST, &[0, 0, 0, 0, 2, 0, 0, 0], 3);
        let bytes =
            [record(STDOUT, b"hello", 3), record(STDERR, b"", 0), record(STDERR, b"oh", 255), end, refused];
        let expected = [
            Record::Stdout(Bytes::from_static(b"hello")),
            Record::Stderr(Bytes::from_static(b"oh")),
            Record::End { complete: true },
            Record::End { complete: false },
        ];
        for step in [1, 2, 7, 8, 9, 1000] {
            assert_eq!(decode(&bytes.concat(), step).unwrap(), expected, "{step}");
        }
    }

    /// A connection is kept for the next request only if nothing of a record is left on it.
    #[test]
    fn the_beginning_of_a_record_is_not_nothing() {
        let (mut decoder, bytes) = (Decoder::default(), record(STDOUT, b"hello", 3));
        assert!(decoder.is_empty());
        decoder.room().extend_from_slice(&bytes[..3]);
        assert_eq!((decoder.take(), decoder.is_empty()), (Ok(None), false));
        decoder.room().extend_from_slice(&bytes[3..]);
        assert!(decoder.take().unwrap().is_some() && decoder.is_empty());
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

    #[test]
    fn long_parameters_are_cut_into_records() {
        let value = vec![b'v'; 200_000];
        let bytes = begin([(&b"NAME"[..], &value[..])].into_iter());
        let (mut rest, mut content) = (&bytes[16..], Vec::new());
        loop {
            let length = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
            assert_eq!(rest[1], PARAMS);
            if length == 0 {
                break;
            }
            content.extend_from_slice(&rest[8..8 + length]);
            rest = &rest[8 + length..];
        }
        assert_eq!(&content[..9], [4, 0x80, 3, 13, 64, b'N', b'A', b'M', b'E']);
        assert_eq!(content.len(), 9 + value.len());
    }
}

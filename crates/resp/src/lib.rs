//! RESP 3, what Redis and Valkey speak: commands as arrays of strings with their lengths, and replies.
//!
//! Runs in: data proxies; pure. Sees: what a server says, and values from services. Never: looks into a word of a
//! command, makes room for a length that is only claimed, or keeps more of a reply than it may.
//!
//! Source: the Redis serialization protocol specification; RESP 3 is RESP 2 with more types.

mod decoder;
#[cfg(test)]
mod tests;

use std::fmt;

pub use decoder::ReplyDecoder;

/// LIMIT: bytes of a line: a number, an error, a status.
pub const LINE_MAX: usize = 16 << 10;
/// LIMIT: lists in lists.
pub const DEPTH_MAX: usize = 8;
/// The size of each value of a reply beside its bytes: its bytes in an answer.
pub const VALUE_BYTES: usize = 5;

/// A reply, or a value of one.
#[derive(Clone, Debug, PartialEq)]
pub enum RespReply {
    /// No value.
    Null,
    /// A whole number; 0 and 1 stand for false and true.
    Int(i64),
    /// A number of double precision.
    Real(f64),
    /// Text or bytes.
    Bytes(Vec<u8>),
    /// A list or a set.
    List(Vec<RespReply>),
    /// A map: each key, with its value behind it.
    Map(Vec<RespReply>),
    /// The command has failed.
    Failed(String),
}

/// Bytes that are no RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RespError(pub &'static str);

impl fmt::Display for RespError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answers with what is no RESP: {}", self.0)
    }
}

impl std::error::Error for RespError {}

/// Appends a command: each word behind its length, so that a word is one whatever bytes it has.
pub fn put_command<W: AsRef<[u8]>>(words: &[W], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

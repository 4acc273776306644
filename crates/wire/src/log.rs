//! Batches of log records, from everyone to the logger.
//!
//! Runs in: every role (writing) and the logger (reading). Sees: in the logger, whatever a compromised client
//! makes up. Never: lets a record reach outside of its batch, or a batch name a file.
//!
//! A batch is one message: version, the sequence number of its first record, then records, each a length, a
//! kind and its fields. Sequence numbers let the logger count what a killed or overloaded client lost.
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.3.

use std::net::SocketAddr;

use crate::codec::{DecodeError, Field, Reader, VERSION};

/// The longest batch, in bytes.
///
/// LIMIT: one message; a buffer is handed over when the next record might not fit.
pub const BATCH_MAX: usize = 48 * 1024;

/// The longest fields of an access record, in bytes; what is longer is cut.
pub const METHOD_MAX: usize = 16;
/// See [`METHOD_MAX`].
pub const TARGET_MAX: usize = 2048;
/// See [`METHOD_MAX`].
pub const HOST_MAX: usize = 255;
/// See [`METHOD_MAX`]; of Referer and User-Agent each.
pub const HEADER_MAX: usize = 512;
/// The longest text of an error record, in bytes.
pub const TEXT_MAX: usize = 1024;
/// The longest record, in bytes: all fields at their limit.
pub const RECORD_MAX: usize = METHOD_MAX + TARGET_MAX + HOST_MAX + 2 * HEADER_MAX + 128;

/// One answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// When it was answered, in microseconds since 1970 (UTC).
    pub time_us: u64,
    /// How long it took, in microseconds.
    pub duration_us: u32,
    /// The site whose log it belongs to, or [`crate::NO_PARTITION`].
    pub site: u16,
    /// The client.
    pub peer: SocketAddr,
    /// The status code.
    pub status: u16,
    /// Bytes of the response's body.
    pub body_bytes: u64,
    /// The minor version of HTTP/1, 2 for HTTP/2, or 255 if the request was not understood.
    pub version: u8,
    /// The method, as sent.
    pub method: &'a [u8],
    /// The request target, as sent.
    pub target: &'a [u8],
    /// The host asked for.
    pub host: &'a [u8],
    /// The Referer header, empty if there is none.
    pub referer: &'a [u8],
    /// The User-Agent header, empty if there is none.
    pub agent: &'a [u8],
}

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error = 0,
    /// Something is not as it should be.
    Warning = 1,
    /// For information.
    Info = 2,
}

/// One record, as the logger reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An answered request, for an access log.
    Access(Access<'a>),
    /// An event, for the error log.
    Event {
        /// When, in microseconds since 1970 (UTC).
        time_us: u64,
        /// How bad.
        level: Level,
        /// What happened.
        text: &'a [u8],
    },
}

/// Begins a batch whose first record has the number `sequence`.
pub fn begin(out: &mut Vec<u8>, sequence: u64) {
    out.push(VERSION);
    sequence.put(out);
}

/// Appends a record; fields over their limit are cut.
pub fn append(out: &mut Vec<u8>, record: &Record<'_>) {
    let start = out.len();
    0_u16.put(out);
    match record {
        Record::Access(access) => put_access(out, access),
        Record::Event { time_us, level, text } => {
            out.push(1);
            time_us.put(out);
            out.push(*level as u8);
            put_cut(out, text, TEXT_MAX);
        }
    }
    let length = (out.len() - start - 2) as u16;
    out[start..start + 2].copy_from_slice(&length.to_le_bytes());
}

fn put_access(out: &mut Vec<u8>, access: &Access<'_>) {
    out.push(0);
    access.time_us.put(out);
    access.duration_us.put(out);
    access.site.put(out);
    access.peer.put(out);
    access.status.put(out);
    access.body_bytes.put(out);
    access.version.put(out);
    put_cut(out, access.method, METHOD_MAX);
    put_cut(out, access.target, TARGET_MAX);
    put_cut(out, access.host, HOST_MAX);
    put_cut(out, access.referer, HEADER_MAX);
    put_cut(out, access.agent, HEADER_MAX);
}

fn put_cut(out: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    let bytes = &bytes[..bytes.len().min(limit)];
    (bytes.len() as u16).put(out);
    out.extend_from_slice(bytes);
}

/// A batch being read: an iterator over its records that ends at the first malformed one.
pub struct Batch<'a> {
    /// The number of its first record.
    pub sequence: u64,
    rest: Reader<'a>,
}

impl<'a> Batch<'a> {
    /// Reads the head of a batch.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = Reader(bytes);
        match u8::take(&mut rest)? {
            VERSION => Ok(Self { sequence: u64::take(&mut rest)?, rest }),
            other => Err(DecodeError::Version(other)),
        }
    }

    fn record(&mut self) -> Result<Record<'a>, DecodeError> {
        let length = u16::take(&mut self.rest)? as usize;
        let mut fields = Reader(self.rest.bytes(length)?);
        let record = match u8::take(&mut fields)? {
            0 => Record::Access(take_access(&mut fields)?),
            1 => Record::Event {
                time_us: u64::take(&mut fields)?,
                level: take_level(&mut fields)?,
                text: take_cut(&mut fields, TEXT_MAX)?,
            },
            other => return Err(DecodeError::Type(other)),
        };
        fields.end()?;
        Ok(record)
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = Result<Record<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.0.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.rest.0 = &[];
        }
        Some(record)
    }
}

fn take_level(fields: &mut Reader<'_>) -> Result<Level, DecodeError> {
    match u8::take(fields)? {
        0 => Ok(Level::Error),
        1 => Ok(Level::Warning),
        2 => Ok(Level::Info),
        _ => Err(DecodeError::Value("level")),
    }
}

fn take_access<'a>(fields: &mut Reader<'a>) -> Result<Access<'a>, DecodeError> {
    Ok(Access {
        time_us: u64::take(fields)?,
        duration_us: u32::take(fields)?,
        site: u16::take(fields)?,
        peer: SocketAddr::take(fields)?,
        status: u16::take(fields)?,
        body_bytes: u64::take(fields)?,
        version: u8::take(fields)?,
        method: take_cut(fields, METHOD_MAX)?,
        target: take_cut(fields, TARGET_MAX)?,
        host: take_cut(fields, HOST_MAX)?,
        referer: take_cut(fields, HEADER_MAX)?,
        agent: take_cut(fields, HEADER_MAX)?,
    })
}

fn take_cut<'a>(fields: &mut Reader<'a>, limit: usize) -> Result<&'a [u8], DecodeError> {
    let length = u16::take(fields)? as usize;
    if length > limit {
        return Err(DecodeError::Limit(limit));
    }
    fields.bytes(length)
}

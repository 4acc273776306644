//! What the access log is told of a request.
//!
//! Untrusted input: everything that a client has said; the logger escapes it. Must never: hold more than the head says.

use std::time::Instant;

use crate::head::Head;
use crate::http::conn_info::ConnInfo;

/// One request and its answer, for the access log.
#[derive(Debug)]
pub struct Access<'a> {
    /// The two ends of the connection.
    pub conn: &'a ConnInfo,
    /// The method; empty if the head was refused.
    pub method: &'a str,
    /// The target as sent; empty if the head was refused.
    pub target: &'a str,
    /// The minor version of HTTP/1, or 2 for HTTP/2.
    pub minor: u8,
    /// The host as sent, without port.
    pub host: &'a [u8],
    /// The status code; 499 if the client went away before there was an answer.
    pub status: u16,
    /// Bytes of the answer's body that were passed to the kernel.
    pub body_bytes: u64,
    /// `Referer`, or empty.
    pub referer: &'a [u8],
    /// `User-Agent`, or empty.
    pub user_agent: &'a [u8],
    /// From the arrival of the head to the end of the answer, in microseconds.
    pub duration_us: u64,
}

impl<'a> Access<'a> {
    /// What was said and sent; `head` is `None` if it was refused. `since` is when it arrived.
    pub(crate) fn of(
        conn: &'a ConnInfo,
        head: Option<&Head<'a>>,
        status: u16,
        body_bytes: u64,
        since: Instant,
    ) -> Self {
        Access {
            conn,
            method: head.map_or("", |head| head.method),
            target: head.map_or("", |head| head.target),
            minor: head.map_or(1, |head| head.minor),
            host: head.map_or(b"", |head| head.host),
            status,
            body_bytes,
            referer: head.map_or(b"", |head| head.referer),
            user_agent: head.map_or(b"", |head| head.user_agent),
            duration_us: u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX),
        }
    }
}

//! The record of a request for the access log.
//!
//! Untrusted input: everything that a client has said; the logger escapes it. Must never: hold more than the head says.

use std::time::Instant;

use crate::head::RequestHead;
use crate::http::conn_info::ConnInfo;

/// One request and its answer, for the access log.
#[derive(Debug)]
pub struct AccessRecord<'a> {
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

impl<'a> AccessRecord<'a> {
    /// Of a request whose head was refused. `since` is when it arrived.
    pub(crate) fn refused(conn: &'a ConnInfo, status: u16, body_bytes: u64, since: Instant) -> Self {
        AccessRecord {
            conn,
            method: "",
            target: "",
            minor: 1,
            host: b"",
            status,
            body_bytes,
            referer: b"",
            user_agent: b"",
            duration_us: u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// The same of a request with this head.
    pub(crate) fn with_head(self, head: &RequestHead<'a>) -> Self {
        AccessRecord {
            method: head.method,
            target: head.target,
            minor: head.minor,
            host: head.host,
            referer: head.referer,
            user_agent: head.user_agent,
            ..self
        }
    }
}

/// The request's part of the access record, for a response that outlives the bytes of the head.
#[derive(Debug)]
pub(crate) struct LoggedRequest {
    /// Method, target, host, `Referer` and `User-Agent`, one behind the other: one allocation for all.
    text: Box<[u8]>,
    /// Where the first four of them end.
    ends: [u32; 4],
    minor: u8,
}

impl LoggedRequest {
    /// Of a request with this head, which came by this version, as [`AccessRecord::minor`] has it.
    pub fn new(head: &RequestHead<'_>, minor: u8) -> Self {
        let parts =
            [head.method.as_bytes(), head.target.as_bytes(), head.host, head.referer, head.user_agent];
        let mut end = 0;
        let ends = [0, 1, 2, 3].map(|part: usize| {
            end += parts[part].len();
            // LIMIT: a head has fewer bytes.
            u32::try_from(end).unwrap_or(u32::MAX)
        });
        Self { text: parts.concat().into(), ends, minor }
    }

    /// Whether a response to the request has no body.
    pub fn is_head(&self) -> bool {
        self.part(0) == b"HEAD"
    }

    /// `access` with what the request says.
    pub fn describe<'a>(&'a self, access: AccessRecord<'a>) -> AccessRecord<'a> {
        // INVARIANT: method and target were text before.
        let text = |part| std::str::from_utf8(self.part(part)).unwrap_or_default();
        AccessRecord {
            method: text(0),
            target: text(1),
            minor: self.minor,
            host: self.part(2),
            referer: self.part(3),
            user_agent: self.part(4),
            ..access
        }
    }

    fn part(&self, part: usize) -> &[u8] {
        let end = |part: usize| self.ends.get(part).map_or(self.text.len(), |&end| end as usize);
        let start = part.checked_sub(1).map_or(0, end);
        self.text.get(start..end(part)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{self, CheckedHead};

    #[test]
    fn a_logged_request_says_what_its_head_said() {
        let conn = ConnInfo {
            peer: "192.0.2.7:5".parse().unwrap(),
            local: "127.0.0.1:80".parse().unwrap(),
            tls: false,
            relayed: None,
        };
        for raw in [
            "GET http://a.example:80/x?y HTTP/1.1\r\nHost: a.example\r\nReferer: r\u{e9}\r\nUser-Agent: u\r\n\r\n",
            "HEAD / HTTP/1.0\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: b\r\nUser-Agent: u\r\n\r\n",
        ] {
            let CheckedHead::Whole(head) = head::check(raw.as_bytes(), usize::MAX) else { panic!("{raw}") };
            let refused = || AccessRecord::refused(&conn, 200, 3, Instant::now());
            let (logged, whole) = (LoggedRequest::new(&head, head.minor), refused().with_head(&head));
            let access = logged.describe(refused());
            assert_eq!(
                (access.method, access.target, access.minor),
                (whole.method, whole.target, whole.minor)
            );
            assert_eq!((access.host, access.referer), (whole.host, whole.referer));
            assert_eq!((access.user_agent, access.status), (whole.user_agent, 200));
            assert_eq!(logged.is_head(), raw.starts_with("HEAD"));
        }
    }
}

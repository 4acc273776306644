//! The lines of the logs.
//!
//! Runs in: the logger. Sees: records of any client, which may be made up. Never: puts an untrusted byte into a
//! line unescaped, so that each line is one record, and each record one line.

use std::io::Write as _;
use std::net::IpAddr;

use wire::DecodeError;
use wire::log::{Access, Batch, Level, Record};

use crate::calendar::Clock;
use crate::escape::{put_json, put_quoted, put_text};

/// The format of access logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The Common Log Format.
    #[default]
    Common,
    /// The same with Referer and User-Agent.
    Combined,
    /// One JSON object a line.
    Json,
}

impl Format {
    /// The format that the launcher's number stands for.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Common),
            1 => Some(Self::Combined),
            2 => Some(Self::Json),
            _ => None,
        }
    }
}

/// The version of a request that was not understood.
const NOT_UNDERSTOOD: u8 = 255;
/// The version of a request that came by HTTP/2; the others are minor versions of HTTP/1.
const HTTP2: u8 = 2;

/// Appends the line of an answered request.
pub fn access_line(out: &mut Vec<u8>, clock: &mut Clock, format: Format, access: &Access<'_>) {
    match format {
        Format::Common => put_common(out, clock, access),
        Format::Combined => {
            put_common(out, clock, access);
            put_header(out, access.referer);
            put_header(out, access.agent);
        }
        Format::Json => put_object(out, clock, access),
    }
    out.push(b'\n');
}

/// Appends a line of the error log; `label` must be escaped already, `text` need not be.
pub fn event_line(
    out: &mut Vec<u8>,
    clock: &mut Clock,
    time_us: u64,
    level: Level,
    label: &str,
    text: &[u8],
) {
    clock.put_rfc3339(out, time_us);
    out.extend_from_slice(match level {
        Level::Error => b" error [",
        Level::Warning => b" warning [",
        Level::Info => b" info [",
    });
    out.extend_from_slice(label.as_bytes());
    out.extend_from_slice(b"] ");
    put_text(out, text);
    out.push(b'\n');
}

/// Appends the note that lines of an access log were lost, in that log's own format.
pub(crate) fn lost_line(
    out: &mut Vec<u8>,
    clock: &mut Clock,
    format: Format,
    time_us: u64,
    lost: u64,
    error: &str,
) {
    if format == Format::Json {
        out.extend_from_slice(b"{\"time\":\"");
        clock.put_rfc3339(out, time_us);
        // Writing into memory cannot fail.
        let _ = write!(out, "\",\"lost_lines\":{lost},\"error\":\"");
        put_json(out, error.as_bytes());
        out.extend_from_slice(b"\"}\n");
    } else {
        let _ = write!(out, "# [{}] lost {lost} lines: ", clock.common(time_us));
        put_text(out, error.as_bytes());
        out.push(b'\n');
    }
}

/// Formats every record of a batch, whatever it holds, and counts them: one line each.
///
/// # Errors
/// The fault of the batch; the records before it have been formatted.
pub fn format_batch(
    bytes: &[u8],
    format: Format,
    out: &mut Vec<u8>,
    lines: &mut usize,
) -> Result<(), DecodeError> {
    let mut clock = Clock::default();
    for record in Batch::decode(bytes)? {
        match record? {
            Record::Access(access) => access_line(out, &mut clock, format, &access),
            Record::Event { time_us, level, text } => {
                event_line(out, &mut clock, time_us, level, "fuzz", text)
            }
        }
        *lines += 1;
    }
    Ok(())
}

fn put_version(out: &mut Vec<u8>, version: u8) {
    if version == HTTP2 {
        out.extend_from_slice(b"HTTP/2.0");
    } else {
        out.extend_from_slice(b"HTTP/1.");
        put_number(out, version.into());
    }
}

fn put_common(out: &mut Vec<u8>, clock: &mut Clock, access: &Access<'_>) {
    put_address(out, access.peer.ip());
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(clock.common(access.time_us).as_bytes());
    out.extend_from_slice(b"] \"");
    if access.version == NOT_UNDERSTOOD {
        out.push(b'-');
    } else {
        put_quoted(out, access.method);
        out.push(b' ');
        put_quoted(out, access.target);
        out.push(b' ');
        put_version(out, access.version);
    }
    out.extend_from_slice(b"\" ");
    put_number(out, access.status.into());
    out.push(b' ');
    match access.body_bytes {
        0 => out.push(b'-'),
        bytes => put_number(out, bytes),
    }
}

fn put_header(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(b" \"");
    put_quoted(out, if value.is_empty() { b"-" } else { value });
    out.push(b'"');
}

fn put_object(out: &mut Vec<u8>, clock: &mut Clock, access: &Access<'_>) {
    out.extend_from_slice(b"{\"time\":\"");
    clock.put_rfc3339(out, access.time_us);
    out.extend_from_slice(b"\",\"client\":\"");
    put_address(out, access.peer.ip());
    out.extend_from_slice(b"\",\"host\":\"");
    put_json(out, access.host);
    out.extend_from_slice(b"\",\"method\":\"");
    put_json(out, access.method);
    out.extend_from_slice(b"\",\"target\":\"");
    put_json(out, access.target);
    if access.version == NOT_UNDERSTOOD {
        out.extend_from_slice(b"\",\"version\":null");
    } else {
        out.extend_from_slice(b"\",\"version\":\"");
        put_version(out, access.version);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"status\":");
    put_number(out, access.status.into());
    out.extend_from_slice(b",\"bytes\":");
    put_number(out, access.body_bytes);
    out.extend_from_slice(b",\"duration_us\":");
    put_number(out, access.duration_us.into());
    out.extend_from_slice(b",\"referer\":\"");
    put_json(out, access.referer);
    out.extend_from_slice(b"\",\"agent\":\"");
    put_json(out, access.agent);
    out.extend_from_slice(b"\"}");
}

/// Appends an address, an IPv4 one without the detour over a formatter, which costs as much as the rest of a line.
fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            put_number(out, a.into());
            for octet in [b, c, d] {
                out.push(b'.');
                put_number(out, octet.into());
            }
        }
        // Writing into memory cannot fail.
        IpAddr::V6(v6) => _ = write!(out, "{v6}"),
    }
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::log::{append, begin};

    fn access() -> Access<'static> {
        Access {
            time_us: 1_795_233_906_789_012,
            duration_us: 4321,
            site: 1,
            peer: "192.0.2.7:4711".parse().unwrap(),
            status: 200,
            body_bytes: 123,
            version: 1,
            method: b"GET",
            target: b"/x",
            host: b"a.example",
            referer: b"http://b.example/",
            agent: b"test \"1\"",
        }
    }

    fn line(format: Format, access: &Access<'_>) -> String {
        let mut out = Vec::new();
        access_line(&mut out, &mut Clock::default(), format, access);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn common() {
        assert_eq!(
            line(Format::Common, &access()),
            "192.0.2.7 - - [21/Nov/2026:04:05:06 +0000] \"GET /x HTTP/1.1\" 200 123\n"
        );
    }

    #[test]
    fn combined() {
        assert_eq!(
            line(Format::Combined, &access()),
            "192.0.2.7 - - [21/Nov/2026:04:05:06 +0000] \"GET /x HTTP/1.1\" 200 123 \
             \"http://b.example/\" \"test \\x221\\x22\"\n"
        );
    }

    #[test]
    fn json() {
        assert_eq!(
            line(Format::Json, &access()),
            "{\"time\":\"2026-11-21T04:05:06.789Z\",\"client\":\"192.0.2.7\",\"host\":\"a.example\",\
             \"method\":\"GET\",\"target\":\"/x\",\"version\":\"HTTP/1.1\",\"status\":200,\"bytes\":123,\
             \"duration_us\":4321,\"referer\":\"http://b.example/\",\"agent\":\"test \\\"1\\\"\"}\n"
        );
    }

    #[test]
    fn a_request_that_was_not_understood() {
        let access = Access {
            version: 255,
            status: 400,
            body_bytes: 0,
            peer: "[2001:db8::1]:80".parse().unwrap(),
            method: b"\x16\x03\x01",
            referer: b"",
            agent: b"",
            ..access()
        };
        assert_eq!(
            line(Format::Combined, &access),
            "2001:db8::1 - - [21/Nov/2026:04:05:06 +0000] \"-\" 400 - \"-\" \"-\"\n"
        );
        assert!(line(Format::Json, &access).contains("\"method\":\"\\u0016\\u0003\\u0001\""));
        assert!(line(Format::Json, &access).contains("\"version\":null"));
    }

    #[test]
    fn a_request_by_http2() {
        let access = Access { version: 2, ..access() };
        assert!(line(Format::Combined, &access).contains("\"GET /x HTTP/2.0\""));
        assert!(line(Format::Json, &access).contains("\"version\":\"HTTP/2.0\""));
    }

    #[test]
    fn an_event() {
        let mut out = Vec::new();
        event_line(
            &mut out,
            &mut Clock::default(),
            1_795_233_906_789_012,
            Level::Warning,
            "site a",
            b"x\n2026",
        );
        assert_eq!(String::from_utf8(out).unwrap(), "2026-11-21T04:05:06.789Z warning [site a] x\\x0a2026\n");
    }

    #[test]
    fn a_note_of_lost_lines() {
        let note = |format| {
            let mut out = Vec::new();
            lost_line(&mut out, &mut Clock::default(), format, 0, 7, "disk \"full\"");
            String::from_utf8(out).unwrap()
        };
        assert_eq!(note(Format::Common), "# [01/Jan/1970:00:00:00 +0000] lost 7 lines: disk \"full\"\n");
        assert_eq!(
            note(Format::Json),
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"lost_lines\":7,\"error\":\"disk \\\"full\\\"\"}\n"
        );
    }

    /// Every byte of a batch replaced by others in turn: a poor man's fuzzing.
    #[test]
    fn one_line_per_record_whatever_it_holds() {
        let mut batch = Vec::new();
        begin(&mut batch, 7);
        append(&mut batch, &Record::Access(access()));
        append(&mut batch, &Record::Event { time_us: 1, level: Level::Info, text: b"text" });
        append(&mut batch, &Record::Access(access()));
        for at in 0..batch.len() {
            for value in [0, 1, b'\n', b'"', b'\\', 0x7f, 0x80, 0xff] {
                let mut changed = batch.clone();
                changed[at] = value;
                for format in [Format::Common, Format::Combined, Format::Json] {
                    let (mut out, mut lines) = (Vec::new(), 0);
                    let _ = format_batch(&changed, format, &mut out, &mut lines);
                    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), lines);
                    assert!(out.iter().all(|byte| matches!(byte, b'\n' | b' '..=b'~')));
                }
            }
        }
    }
}

//! The gate's own answers: short pages for what no partition answers.
//!
//! Runs in: the gate. Sees: the head that is answered, for the log. Never: repeats anything of it to the client.

use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use request::head::{self, Checked, Head};
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use wire::log::Access;
use worker::log::now_us;

use crate::connection::{self, Connection};
use crate::gate::Gate;
use crate::incomplete::Stage;
use crate::tls;

/// LIMIT: after an answer, what the client still sends is thrown away for so long and so much, since closing
/// the connection with unread bytes would destroy the answer on its way.
pub const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 * 1024;

/// Why a request is answered here.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// The head is not acceptable, or did not arrive in time.
    Head(head::Refusal),
    /// No site has this host and path.
    NoSuchSite,
    /// The partition is broken.
    Broken,
    /// No worker took the connection in time, or too many wait.
    Unavailable,
    /// The head is good, and no honest client sends it.
    Strange,
    /// The client makes more requests than it may.
    TooMany,
    /// The client makes more requests of one partition than it may, as this one's worker says.
    ///
    /// SECURITY: no offence, as bans are of all partitions.
    TooManyThere,
    /// It is no TLS, on a listener that speaks nothing else.
    NotTls,
    /// No filter could see the requests on it.
    Unseen,
    /// There is https for it, at this port.
    Redirect(u16),
}

impl Refusal {
    /// Status code, reason phrase, and a sentence for people.
    fn words(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Head(head::Refusal::TooLarge) => (
                431,
                "Request Header Fields Too Large",
                "The request head is longer than this server allows.",
            ),
            Self::Head(head::Refusal::Version) => {
                (505, "HTTP Version Not Supported", "This server speaks HTTP/1.1 and HTTP/1.0.")
            }
            Self::Head(head::Refusal::NotImplemented) => {
                (501, "Not Implemented", "This server is not a proxy.")
            }
            Self::Head(head::Refusal::Late) => {
                (408, "Request Timeout", "The request did not arrive in time.")
            }
            Self::Head(head::Refusal::Expectation) => {
                (417, "Expectation Failed", "This server knows no such expectation.")
            }
            Self::Head(head::Refusal::BodyTooLarge) => {
                (413, "Content Too Large", "The request body is larger than this server allows.")
            }
            Self::Head(head::Refusal::Malformed(_)) => {
                (400, "Bad Request", "What was sent is not a valid HTTP request.")
            }
            Self::NoSuchSite => (404, "Not Found", "There is no such site here."),
            Self::Broken => (500, "Internal Server Error", "This part of the site is out of order."),
            Self::Unavailable => {
                (503, "Service Unavailable", "This part of the site is not available at the moment.")
            }
            Self::Strange => (400, "Bad Request", "This server does not accept requests like this one."),
            Self::NotTls => (400, "Bad Request", "This port speaks TLS: use https."),
            Self::Unseen => (400, "Bad Request", "This port speaks HTTP/1.1 only."),
            Self::Redirect(_) => (308, "Permanent Redirect", "This site is at https."),
            Self::TooMany | Self::TooManyThere => {
                (429, "Too Many Requests", "These are more requests than one client may make.")
            }
        }
    }

    /// The header line that says when to come again, if that is any use.
    fn retry_after(self) -> &'static str {
        match self {
            Self::Unavailable => "Retry-After: 5\r\n",
            Self::TooMany | Self::TooManyThere => "Retry-After: 1\r\n",
            _ => "",
        }
    }

    /// Whether it counts against the client, who will be banned for several.
    pub fn is_offence(self) -> bool {
        use head::Refusal::{Late, Malformed, TooLarge};
        matches!(self, Self::Head(Late | Malformed(_) | TooLarge) | Self::Strange | Self::TooMany)
    }
}

/// Answers a connection, notes it, and closes it with care.
pub fn refuse(gate: &Rc<Gate>, connection: Connection, site: u16, refusal: Refusal, now: Instant) {
    if connection.kind == wire::Kind::Tls {
        return refuse_tls(gate, connection, site, refusal, now);
    }
    let (mut status, mut reason, sentence) = refusal.words();
    let mut more = refusal.retry_after().to_owned();
    let mut buffer = gate.peeked.borrow_mut();
    let head = match refusal {
        // It is none, or only a part.
        Refusal::Head(_) => None,
        _ => match head::check(connection.copy_received(&mut buffer), gate.limits.head_bytes) {
            Checked::Whole(head) => Some(head),
            _ => None,
        },
    };
    if let (Refusal::Redirect(port), Some(head)) = (refusal, &head) {
        more = location(head, port);
        if matches!(head.method, "GET" | "HEAD") {
            (status, reason) = (301, "Moved Permanently");
        }
    }
    let body =
        format!("<!doctype html>\n<title>{status} {reason}</title>\n<h1>{reason}</h1>\n<p>{sentence}</p>\n");
    let bodyless = head.as_ref().is_some_and(|head| head.method == "HEAD");
    let body_bytes = if bodyless { 0 } else { body.len() };
    note(gate, &connection, site, status, body_bytes, head.as_ref());
    drop(buffer);
    let mut answer = format!(
        "HTTP/1.1 {status} {reason}\r\nServer: bulkhead\r\nDate: {}\r\nContent-Type: text/html\r\n\
         Content-Length: {}\r\nConnection: close\r\n{}\r\n",
        httpdate::fmt_http_date(SystemTime::now()),
        body.len(),
        more,
    );
    answer.push_str(&body[..body_bytes]);
    send_answer(gate, connection, answer.as_bytes(), now);
}

/// Refuses a client that speaks TLS, to which there is but a word to say.
fn refuse_tls(gate: &Rc<Gate>, connection: Connection, site: u16, refusal: Refusal, now: Instant) {
    note(gate, &connection, site, refusal.words().0, 0, None);
    send_answer(gate, connection, &tls::alert(refusal), now);
}

/// The header line that says where a request is to go. The check of heads lets nothing into hosts and targets that ends
/// a line.
fn location(head: &Head<'_>, port: u16) -> String {
    let host = String::from_utf8_lossy(head.host).to_ascii_lowercase();
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let path = if head.path == "*" { "/" } else { head.path };
    let query = head.query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("Location: https://{host}{port}{path}{query}\r\n")
}

/// Sends the last words to a client, and closes with care.
fn send_answer(gate: &Rc<Gate>, connection: Connection, answer: &[u8], now: Instant) {
    gate.answered();
    // A fresh socket has room for an answer as short as this; a client that left none gets none. The answer waits for
    // its end, and both are one packet.
    let _ = send(&connection.stream, answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::MORE);
    let _ = shutdown(&connection.stream, Shutdown::Write);
    let lingers = match connection::discard(gate, &connection.stream, LINGER_BYTES) {
        Some(left) => gate.incomplete.take(connection, Stage::Answered { left }, now),
        None => false,
    };
    if !lingers {
        gate.connection_closed();
    }
}

fn note(
    gate: &Gate,
    connection: &Connection,
    site: u16,
    status: u16,
    body_bytes: usize,
    head: Option<&Head<'_>>,
) {
    gate.log.access(&Access {
        time_us: now_us(),
        duration_us: u32::try_from(connection.since.elapsed().as_micros()).unwrap_or(u32::MAX),
        site,
        peer: connection.peer,
        status,
        body_bytes: body_bytes as u64,
        version: head.map_or(u8::MAX, |head| head.minor),
        method: head.map_or(b"", |head| head.method.as_bytes()),
        target: head.map_or(b"", |head| head.target.as_bytes()),
        host: head.map_or(b"", |head| head.host),
        referer: head.map_or(b"", |head| head.referer),
        agent: head.map_or(b"", |head| head.user_agent),
    });
}

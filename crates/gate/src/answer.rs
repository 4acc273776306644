//! The gate's own answers: short pages for what no partition answers.
//!
//! Runs in: the gate. Sees: the head that is answered, for the log. Never: repeats anything of it to the client.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Instant;

use http::StatusCode;
use request::date::date;
use request::error;
use request::head::{self, CheckedHead, RequestHead};
use request::hello;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use wire::log::Access;
use worker::log::now_us;
use worker::refused::RefusedRequest;

use crate::connection::GateConnection;
use crate::gate::Gate;
use crate::incomplete::HeadStage;
use crate::refusal::GateRefusal;

/// LIMIT: how much of what a client still sends after its answer is thrown away.
const LINGER_BYTES: usize = 64 * 1024;

/// Answers a connection, notes it, and closes it with care.
pub fn refuse(gate: &Rc<Gate>, connection: GateConnection, site: u16, refusal: GateRefusal, now: Instant) {
    if connection.kind == wire::Kind::Tls {
        return refuse_tls(gate, connection, site, refusal, now);
    }
    let (mut status, sentence) = refusal.words();
    let mut lines = String::new();
    let mut buffer = gate.peeked.borrow_mut();
    let head = match refusal {
        // It is none, or only a part.
        GateRefusal::Head(refused)
            if !matches!(refused, head::HeadRefusal::Strange(_) | head::HeadRefusal::TargetTooLong) =>
        {
            None
        }
        _ => match head::check(connection.copy_received(&mut buffer), gate.limits.head_bytes) {
            CheckedHead::Whole(head) => Some(head),
            _ => None,
        },
    };
    if let (GateRefusal::Redirect(port), Some(head)) = (refusal, &head) {
        lines = location(head, port);
        if matches!(head.method, "GET" | "HEAD") {
            status = StatusCode::MOVED_PERMANENTLY;
        }
    }
    let is_head = head.as_ref().is_some_and(|head| head.method == "HEAD");
    let now_s = now_us() / 1_000_000;
    let (answer, body_bytes) = error::closing(status, &sentence, &date(now_s), &lines, is_head);
    note(gate, &connection, site, status, body_bytes, head.as_ref());
    tell(gate, &connection, refusal, status, head.as_ref());
    drop(buffer);
    send_answer(gate, connection, answer.as_bytes(), now);
}

/// Refuses a client that speaks TLS, to which there is but a word to say.
fn refuse_tls(gate: &Rc<Gate>, connection: GateConnection, site: u16, refusal: GateRefusal, now: Instant) {
    note(gate, &connection, site, refusal.words().0, 0, None);
    match refusal {
        GateRefusal::NoSuchSite => tell_name(gate, &connection),
        _ => tell(gate, &connection, refusal, refusal.words().0, None),
    }
    send_answer(gate, connection, &refusal.alert(), now);
}

/// The header line that says where a request is to go. The check of heads lets nothing into hosts and targets that ends
/// a line.
fn location(head: &RequestHead<'_>, port: u16) -> String {
    let host = request::target::lower_host(head.host);
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let path = if head.path == "*" { "/" } else { head.path };
    let query = head.query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("Location: https://{host}{port}{path}{query}\r\n")
}

/// Sends the last words to a client, and closes with care.
fn send_answer(gate: &Rc<Gate>, connection: GateConnection, answer: &[u8], now: Instant) {
    gate.answered();
    // A fresh socket has room for an answer as short as this; a client that left none gets none. The answer waits for
    // its end, and both are one packet.
    let _ = send(&connection.stream, answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::MORE);
    let _ = shutdown(&connection.stream, Shutdown::Write);
    let lingers = match connection.discard(&mut gate.peeked.borrow_mut(), LINGER_BYTES) {
        Some(left) => gate.incomplete.take(connection, HeadStage::Answered { left }, now),
        None => false,
    };
    if !lingers {
        gate.connection_closed();
    }
}

/// Says in the error log why a request was refused.
fn tell(
    gate: &Gate,
    connection: &GateConnection,
    refusal: GateRefusal,
    status: StatusCode,
    head: Option<&RequestHead<'_>>,
) {
    if let Some((reason, remedy)) = refusal.reason() {
        tell_why(gate, connection, status, head, (reason, "", remedy));
    }
}

fn tell_why(
    gate: &Gate,
    connection: &GateConnection,
    status: StatusCode,
    head: Option<&RequestHead<'_>>,
    (reason, about, remedy): (&'static str, &str, &str),
) {
    let refused = RefusedRequest {
        status: status.as_u16(),
        client: connection.peer.ip(),
        method: head.map_or(b"", |head| head.method.as_bytes()),
        host: head.map_or(b"", |head| head.host),
        target: head.map_or(b"", |head| head.target.as_bytes()),
        reason,
        rule: 0,
        about,
        remedy,
    };
    gate.refusals.note(&gate.log, refused);
}

/// Says in the error log which name of a handshake no site has.
fn tell_name(gate: &Gate, connection: &GateConnection) {
    let mut buffer = gate.peeked.borrow_mut();
    let hello = match hello::check(connection.copy_received(&mut buffer)) {
        hello::CheckedHello::Whole(hello) => Some(hello),
        _ => None,
    };
    let name = hello.as_ref().map_or(Cow::Borrowed(""), |hello| String::from_utf8_lossy(hello.name()));
    let about = if name.is_empty() { String::from("no name") } else { format!("`{name}`") };
    let reason = "a TLS handshake for a name that no site on this listener has";
    let status = GateRefusal::NoSuchSite.words().0;
    tell_why(gate, connection, status, None, (reason, &about, "name it in `host` of a [[site]]"));
}

fn note(
    gate: &Gate,
    connection: &GateConnection,
    site: u16,
    status: StatusCode,
    body_bytes: usize,
    head: Option<&RequestHead<'_>>,
) {
    gate.log.access(&Access {
        time_us: now_us(),
        duration_us: u32::try_from(connection.since.elapsed().as_micros()).unwrap_or(u32::MAX),
        site,
        peer: connection.peer,
        status: status.as_u16(),
        body_bytes: body_bytes as u64,
        version: head.map_or(u8::MAX, |head| head.minor),
        method: head.map_or(b"", |head| head.method.as_bytes()),
        target: head.map_or(b"", |head| head.target.as_bytes()),
        host: head.map_or(b"", |head| head.host),
        referer: head.map_or(b"", |head| head.referer),
        agent: head.map_or(b"", |head| head.user_agent),
    });
}

//! Lines of the error log about requests that were refused: each reason at once, and then no more often than people
//! read.
//!
//! Untrusted input: what clients send; the logger escapes it. Must never: let clients fill the log, or keep silent
//! about what was left out.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use conditioning::checks::HeadFault;
use request::head::HeadRefusal;
use wire::log::Level;

use crate::log::Log;

/// LIMIT: between two lines for one reason: anybody can have as many requests refused as they like.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// LIMIT: bytes of a request's target in a line.
const TARGET_BYTES_MAX: usize = 300;

const _: () = assert!(request::head::TARGET_BYTES_MAX == conditioning::checks::TARGET_BYTES_MAX, "one limit");

/// How a request is refused of whose head the checks say this.
pub fn refusal(fault: HeadFault) -> HeadRefusal {
    match fault {
        HeadFault::Target => HeadRefusal::TargetTooLong,
        fault => HeadRefusal::Strange(fault.words()),
    }
}

/// How many were not told of, and since when.
#[derive(Debug, Default)]
pub struct LogLimiter(Cell<(Option<Instant>, u64)>);

impl LogLimiter {
    /// How many there were in the meantime, if it is time for another line.
    pub fn tell(&self, now: Instant) -> Option<u64> {
        let (last, untold) = self.0.get();
        let tell = last.is_none_or(|last| now.duration_since(last) >= LOG_EVERY);
        self.0.set(if tell { (Some(now), 0) } else { (last, untold + 1) });
        tell.then_some(untold)
    }
}

/// So many events of a kind that were not told of, behind the line about one: nothing if there were none.
#[derive(Clone, Copy, Debug)]
pub struct Untold(pub u64);

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            others => write!(f, " (and {others} others since the last such line)"),
        }
    }
}

/// A request that was refused, as the log tells of it.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// The status that the client got.
    pub status: u16,
    /// The client.
    pub client: IpAddr,
    /// The method; empty where there is no whole request.
    pub method: &'a [u8],
    /// The host that was asked for; may be empty.
    pub host: &'a [u8],
    /// The target, as sent.
    pub target: &'a [u8],
    /// Why, as a part of a sentence.
    pub reason: &'static str,
    /// The rule of the site that it is about, so that one server that fails does not hide another; 0 for none.
    pub rule: u16,
    /// The object of the refusal, such as a file or an upstream; may be empty.
    pub about: &'a str,
    /// The remedy for the operator; may be empty.
    pub remedy: &'a str,
}

/// The reasons that have been told of.
#[derive(Debug, Default)]
pub struct Refusals(RefCell<HashMap<(&'static str, u16), LogLimiter>>);

impl Refusals {
    /// Logs a refusal, unless one for the same reason and rule was logged just now.
    pub fn note(&self, log: &Log, refused: RefusedRequest<'_>) {
        let told =
            self.0.borrow_mut().entry((refused.reason, refused.rule)).or_default().tell(Instant::now());
        if let Some(others) = told {
            log.event(Level::Warning, RefusalLine { refused, others });
        }
    }
}

/// A line.
struct RefusalLine<'a> {
    refused: RefusedRequest<'a>,
    others: u64,
}

impl fmt::Display for RefusalLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RefusedRequest { status, client, method, host, target, reason, about, remedy, .. } = self.refused;
        write!(f, "{status} for {client}")?;
        let target = &target[..target.len().min(TARGET_BYTES_MAX)];
        let text = String::from_utf8_lossy;
        match (method.is_empty(), target.is_empty()) {
            (true, true) => {}
            (true, false) => write!(f, " \"{}\"", text(target))?,
            (false, _) => write!(f, " \"{} {}{}\"", text(method), text(host), text(target))?,
        }
        write!(f, ": {reason}")?;
        for more in [about, remedy].into_iter().filter(|more| !more.is_empty()) {
            write!(f, "; {more}")?;
        }
        Untold(self.others).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_every_ten_seconds_with_what_it_left_out() {
        let (limiter, begin) = (LogLimiter::default(), Instant::now());
        let tell = |seconds: f64| limiter.tell(begin + Duration::from_secs_f64(seconds));
        assert_eq!([tell(0.0), tell(0.1), tell(9.9)], [Some(0), None, None]);
        assert_eq!([tell(10.0), tell(19.9), tell(20.0)], [Some(2), None, Some(1)]);
    }

    #[test]
    fn what_a_line_says() {
        let refused = RefusedRequest {
            status: 403,
            client: "192.0.2.1".parse().unwrap(),
            method: b"GET",
            host: b"a.test",
            target: b"/x",
            reason: "the file may not be read",
            rule: 0,
            about: "`public/x`, by uid 51001",
            remedy: "chmod o+r",
        };
        let said = RefusalLine { refused, others: 2 }.to_string();
        assert_eq!(
            said,
            "403 for 192.0.2.1 \"GET a.test/x\": the file may not be read; `public/x`, by uid 51001; chmod o+r (and 2 \
             others since the last such line)"
        );
        let long = vec![b'a'; 1000];
        let bare = RefusedRequest { method: b"", target: b"", about: "", remedy: "", ..refused };
        assert_eq!(
            RefusalLine { refused: bare, others: 0 }.to_string(),
            "403 for 192.0.2.1: the file may not be read"
        );
        let cut = RefusalLine { refused: RefusedRequest { target: &long, ..refused }, others: 0 }.to_string();
        assert!(cut.len() < 500, "{cut}");
    }
}

//! Batches for the logger that a real program would not write.
//!
//! Runs in: `rogue`. Sees no untrusted bytes. Never: writes what a test could take for a good process's.

use std::net::SocketAddr;

use wire::NO_PARTITION;
use wire::log::{Access, Level, Record, append, begin};

/// How a line begins that must not be found in another's log.
pub const FORGED: &[u8] = b"/forged-by-rogue";

/// An event that tries to be a line of the launcher's.
const LINE: &[u8] =
    b"x\n2026-01-01T00:00:00.000Z error [bulkheadd] forged-by-rogue\r\n\x1b[2Jforged-by-rogue";

/// Each batch with what it is.
pub fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    let mut cut = batch(20, &[event(b"cut"), event(b"cut")]);
    cut.pop();
    let forged: Vec<Record<'_>> = (0..40).chain([NO_PARTITION]).map(access).collect();
    vec![
        ("garbage", vec![0xCD; 100]),
        ("another version", vec![9; 20]),
        ("a batch cut short", cut),
        ("an event that looks like two lines", batch(30, &[event(LINE)])),
        ("access records of every site", batch(40, &forged)),
        ("numbers that go backwards", batch(3, &[event(b"backwards")])),
        ("the highest number", batch(u64::MAX, &[event(b"highest")])),
        ("an oversized batch", vec![1; wire::MESSAGE_MAX + 1]),
    ]
}

/// One batch of a flood.
pub fn flood(number: u64) -> Vec<u8> {
    batch(number * 200, &[event(b"flood"); 200])
}

fn batch(sequence: u64, records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    begin(&mut bytes, sequence);
    records.iter().for_each(|record| append(&mut bytes, record));
    bytes
}

fn event(text: &[u8]) -> Record<'_> {
    Record::Event { time_us: 0, level: Level::Error, text }
}

fn access(site: u16) -> Record<'static> {
    Record::Access(Access {
        time_us: 1_700_000_000_000_000,
        duration_us: 1,
        site,
        peer: SocketAddr::from(([192, 0, 2, 1], 1)),
        status: 200,
        body_bytes: 1,
        version: 1,
        method: b"GET",
        target: FORGED,
        host: b"main.test",
        referer: b"",
        agent: b"",
    })
}

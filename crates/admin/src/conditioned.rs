//! The connections and requests that gates and sites have dropped, as a line of JSON for each process.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted), with numbers of gates and sites, which may be
//! compromised. Never: takes a number for anything but a number.

use serde::Serialize;
use serde_json::{Map, Value};
use wire::{Role, Shed};

/// An address range that a process holds much of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TopRange {
    range: String,
    held: u32,
    waiting: u32,
}

impl TopRange {
    /// The range of the first `bits` of an address.
    pub(crate) fn new((high, low): (u64, u64), bits: u8, held: u32, waiting: u32) -> Self {
        let range = wire::range_text(high, low, bits);
        Self { range, held, waiting }
    }
}

/// A gate or a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConditioningRow {
    role: &'static str,
    name: String,
    shed: Map<String, Value>,
    top_ranges: Vec<TopRange>,
}

impl ConditioningRow {
    pub(crate) fn new(role: Role, name: &str, shed: &Shed, top_ranges: Vec<TopRange>) -> Self {
        let shed = shed.counts().map(|(reason, count)| (reason.to_owned(), count.into()));
        Self { role: role.name(), name: name.to_owned(), shed: shed.collect(), top_ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_as_people_write_them() {
        let range = |text: &str, bits| TopRange::new(wire::halves(text.parse().unwrap()), bits, 1, 2).range;
        assert_eq!(range("::ffff:10.1.0.0", 112), "10.1.0.0/16");
        assert_eq!(range("::ffff:0.0.0.0", 96), "0.0.0.0/0");
        assert_eq!(range("2001:db8::", 32), "2001:db8::/32");
        assert_eq!(range("::", 0), "::/0");
    }
}

//! The gate's dropped connections, in words.
//!
//! Runs in: the guard. Sees: numbers of the gate. Never: more than a line for each range.

use wire::{Shed, range_text};

/// LIMIT: ranges that are named; more are not read by anybody.
const RANGES_MAX: usize = 8;

/// A report that comes in pieces.
#[derive(Debug, Default)]
pub struct ConditioningReport {
    ranges: Vec<String>,
}

impl ConditioningReport {
    /// Takes a range that holds much.
    pub fn heavy(&mut self, (high, low): (u64, u64), bits: u8, held: u32, waiting: u32) {
        if self.ranges.len() < RANGES_MAX {
            let range = range_text(high, low, bits);
            self.ranges.push(format!("  {range}: holds {held}, {waiting} wait"));
        }
    }

    /// The whole of it, a line for what was shed and one for each range.
    pub fn complete(&mut self, shed: &Shed) -> Vec<String> {
        let mut lines = vec![sentence(shed)];
        lines.append(&mut self.ranges);
        lines
    }
}

fn sentence(shed: &Shed) -> String {
    let reasons = shed.reasons().filter(|(_, _, count)| *count > 0);
    let shed_words: Vec<String> = reasons.map(|(_, word, count)| format!("{count} {word}")).collect();
    let shed_words = if shed_words.is_empty() { "nothing".into() } else { shed_words.join(", ") };
    format!(
        "{} requests passed on; shed: {shed_words}; {} had to wait for their share; now {} incomplete, {} waiting, \
         {} banned",
        shed.admitted, shed.delayed, shed.incomplete_now, shed.waiting_now, shed.banned_now
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_both_families() {
        assert_eq!(range_text(0, 0x0000_ffff_0a01_0000, 112), "10.1.0.0/16");
        assert_eq!(range_text(0x2001_0db8_0000_0000, 0, 32), "2001:db8::/32");
        let mut report = ConditioningReport::default();
        (0..20).for_each(|_| report.heavy((0, 0x0000_ffff_0a00_0000), 104, 3, 2));
        assert_eq!(report.ranges.len(), RANGES_MAX);
        assert_eq!(report.ranges[0], "  10.0.0.0/8: holds 3, 2 wait");
    }
}

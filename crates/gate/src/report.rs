//! A gate's report of the connections and requests that it drops.
//!
//! Runs in: the gate. Sees: addresses of clients, as ranges. Never: says more than the launcher asked for: numbers.

use std::collections::HashMap;
use std::time::Instant;

use conditioning::AddressRange;
use wire::{ChildToLauncher, Shed};

use crate::gate::Gate;

/// LIMIT: ranges in one report: of those that hold a tenth there are ten at each of a few widths.
const RANGES_MAX: usize = 16;

/// The messages of a report, in order.
pub fn report(gate: &Gate) -> Vec<ChildToLauncher> {
    let mut messages = top_ranges(gate);
    messages.push(ChildToLauncher::Shed { shed: shed(gate, Instant::now()) });
    messages
}

fn shed(gate: &Gate, now: Instant) -> Shed {
    let mut shed = gate.drops.snapshot();
    gate.policies().report(&mut shed, now);
    gate.each_dispatcher(|dispatcher| dispatcher.report(&mut shed));
    shed.incomplete_now = u32::try_from(gate.incomplete.len()).unwrap_or(u32::MAX);
    shed.filtered = gate.filters().map_or(0, |chain| chain.missing());
    shed
}

/// The ranges of addresses that most is held for, and those that most waits of.
fn top_ranges(gate: &Gate) -> Vec<ChildToLauncher> {
    let mut ranges = HashMap::<AddressRange, (u32, u32)>::new();
    for (range, count) in gate.incomplete.ranges(RANGES_MAX) {
        ranges.entry(range).or_default().0 += count;
    }
    gate.each_dispatcher(|dispatcher| {
        for (range, count) in dispatcher.ranges_held(RANGES_MAX) {
            ranges.entry(range).or_default().0 += count;
        }
        for (range, count) in dispatcher.ranges_waiting(RANGES_MAX) {
            ranges.entry(range).or_default().1 += count;
        }
    });
    let mut ranges: Vec<_> = ranges.into_iter().collect();
    ranges.sort_by_key(|(range, (held, waiting))| (std::cmp::Reverse(held + waiting), *range));
    ranges.truncate(RANGES_MAX);
    let message = |(range, (held, waiting)): (AddressRange, (u32, u32))| {
        let (address_high, address_low, bits) = range.parts();
        ChildToLauncher::TopRange { address_high, address_low, bits, held, waiting }
    };
    ranges.into_iter().map(message).collect()
}

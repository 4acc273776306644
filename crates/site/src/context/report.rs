//! A worker's report of the clients that it turned away, for `bulkhead status --conditioning`.
//!
//! Untrusted input: none. Must never: name more ranges of addresses than people read.

use std::collections::BTreeMap;

use wire::ChildToLauncher;

use crate::context::SiteContext;

/// LIMIT: address ranges named in a report, as many as people read.
const RANGES_MAX: usize = 16;

impl SiteContext {
    /// Reports what was dropped, which ranges hold most, and how many requests wait.
    pub fn report(&self) -> Vec<ChildToLauncher> {
        let mut shed = self.shed.snapshot();
        shed.admitted = self.worker.receiver.counters.requests.get();
        shed.evicted = self.idle_pool.evicted();
        for limit in [&self.worker.limit, &self.worker.streams] {
            let counts = limit.counts();
            shed.delayed += counts.delayed;
            shed.over_share += counts.over_share;
            shed.unavailable += counts.unavailable;
            shed.waiting_now += counts.waiting as u32;
        }
        shed.over_rate = self.worker.rates.refused();
        shed.incomplete_now = self.idle_pool.idle();
        let mut heavy: BTreeMap<(u64, u64, u8), (u32, u32)> = BTreeMap::new();
        for (range, held) in self.idle_pool.ranges(RANGES_MAX) {
            heavy.entry(range.parts()).or_default().0 += held;
        }
        let requests = self.worker.limit.ranges(RANGES_MAX);
        for (range, held) in requests.held {
            let of_range = &mut heavy.entry(range.parts()).or_default().0;
            // A connection and its one request count once.
            *of_range = held.max(*of_range);
        }
        for (range, waiting) in requests.waiting {
            heavy.entry(range.parts()).or_default().1 += waiting;
        }
        let sites = self.worker.backends.relays.ways();
        for relay in self.worker.backends.services().chain(sites.iter().map(|way| &**way)) {
            relay.report(&mut shed);
            for (range, waiting) in relay.ranges_waiting(RANGES_MAX) {
                heavy.entry(range.parts()).or_default().1 += waiting;
            }
        }
        let ranges = heavy.into_iter().map(|((address_high, address_low, bits), (held, waiting))| {
            ChildToLauncher::TopRange { address_high, address_low, bits, held, waiting }
        });
        ranges.chain([ChildToLauncher::Shed { shed }]).collect()
    }
}

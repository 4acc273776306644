//! How many requests one client may make: a bucket of tokens for each.
//!
//! Runs in: gates, filters; pure. Sees: addresses of clients. Never: takes more memory the more clients there are.
//!
//! A bucket is one moment: when it will be full. It is empty if that is a whole bucket's filling time ahead.
//! Row D13.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::address::Origin;
use crate::network::Exempt;
use crate::recent::Recent;

/// LIMIT: clients whose buckets are known; about 5 MiB. That of one who was not heard of for longest is full again.
const CLIENTS_MAX: u32 = 65_536;

/// See the file's head.
#[derive(Debug)]
pub struct Rate {
    /// What one token takes to come.
    interval: Duration,
    /// What a whole bucket takes to fill.
    filling: Duration,
    exempt: Exempt,
    full_at: Recent<Instant>,
    /// Requests that were refused.
    pub over_rate: u64,
}

impl Rate {
    /// `per_second` requests of each client, any number if that is 0; up to `burst` of them (at least one) at once.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_nanos(1_000_000_000_u64.checked_div(per_second.into()).unwrap_or(0));
        Self {
            interval,
            filling: interval * burst.max(1),
            exempt: Exempt::default(),
            full_at: Recent::new(CLIENTS_MAX),
            over_rate: 0,
        }
    }

    /// The clients of these networks may make any number.
    pub fn exempting(self, exempt: Exempt) -> Self {
        Self { exempt, ..self }
    }

    /// Whether `address` may make a request now; takes a token if it may.
    pub fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.interval.is_zero() || self.exempt.contains(address) {
            return true;
        }
        let full_at = self.full_at.hear(Origin::from(address), || now);
        let then = (*full_at).max(now) + self.interval;
        let may = then <= now + self.filling;
        if may {
            *full_at = then;
        } else {
            self.over_rate += 1;
        }
        may
    }
}

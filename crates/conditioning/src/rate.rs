//! How many requests one client may make: a bucket of tokens for each.
//!
//! Runs in: gates, site workers, filters, services; pure. Sees: addresses of clients. Never: takes more memory the more
//! clients there are.
//!
//! A bucket is one moment: when it will be full. It is empty if that is a whole bucket's filling time ahead.

use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::address::ClientOrigin;
use crate::network::Exempt;
use crate::recent::Recent;

/// LIMIT: clients whose buckets are known; about 5 MiB. That of one who was not heard of for longest is full again.
const CLIENTS_MAX: u32 = 65_536;

/// The decision about a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
    /// Make this request, and many more.
    Within,
    /// Make this request; more than half of the bucket is used.
    Low,
    /// Not make this request.
    Over,
}

/// A bucket of tokens for each key. A key that was not heard of for longest is forgotten first, so its bucket is full
/// again.
#[derive(Debug)]
pub struct Buckets<K> {
    /// The time in which one token comes.
    interval: Duration,
    /// The time in which a whole bucket fills.
    filling: Duration,
    full_at: Recent<Instant, K>,
}

impl<K: Copy + Eq + Hash> Buckets<K> {
    /// Buckets of `size` tokens (at least one), into which one comes each `interval`; at most `keys_max` are known.
    pub fn new(interval: Duration, size: u32, keys_max: u32) -> Self {
        Self { interval, filling: interval * size.max(1), full_at: Recent::new(keys_max) }
    }

    /// Takes a token of `key`: how much of the bucket is used then, as the time that it takes to fill.
    ///
    /// # Errors
    /// There is none; how long it takes until there is.
    pub fn take(&mut self, key: K, now: Instant) -> Result<Duration, Duration> {
        let full_at = self.full_at.touch(key, || now);
        let used = (*full_at).max(now) + self.interval - now;
        if used > self.filling {
            return Err(used - self.filling);
        }
        *full_at = now + used;
        Ok(used)
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct Rate {
    buckets: Buckets<ClientOrigin>,
    exempt: Exempt,
    /// Requests that were refused.
    pub over_rate: u64,
}

impl Rate {
    /// `per_second` requests of each client, any number if that is 0; up to `burst` of them (at least one) at once.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_nanos(1_000_000_000_u64.checked_div(per_second.into()).unwrap_or(0));
        let buckets = Buckets::new(interval, burst, CLIENTS_MAX);
        Self { buckets, exempt: Exempt::default(), over_rate: 0 }
    }

    /// The clients of these networks may make any number.
    pub fn exempting(self, exempt: Exempt) -> Self {
        Self { exempt, ..self }
    }

    /// Knows the buckets of at most so many clients.
    pub fn remembering(mut self, clients: u32) -> Self {
        self.buckets.full_at = Recent::new(clients);
        self
    }

    /// Whether `address` may make a request now; takes a token if it may.
    pub fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        self.ask(address, now) != RateDecision::Over
    }

    /// As [`Rate::take`], and whether the bucket of `address` is less than half full.
    pub fn ask(&mut self, address: IpAddr, now: Instant) -> RateDecision {
        if self.buckets.interval.is_zero() || self.exempt.contains(address) {
            return RateDecision::Within;
        }
        match self.buckets.take(address.into(), now) {
            Ok(used) if used > self.buckets.filling / 2 => RateDecision::Low,
            Ok(_) => RateDecision::Within,
            Err(_) => {
                self.over_rate += 1;
                RateDecision::Over
            }
        }
    }

    /// How much of the bucket of `address` is used, as the time after which it is full again.
    pub fn used(&self, address: IpAddr, now: Instant) -> Duration {
        let full_at = self.buckets.full_at.get(address.into());
        full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Notes that so much of the bucket of `address` is used, as somebody says who has seen more of its requests.
    pub fn record(&mut self, address: IpAddr, used: Duration, now: Instant) {
        let then = now + used.min(self.buckets.filling);
        let full_at = self.buckets.full_at.touch(address.into(), || then);
        *full_at = then.max(*full_at);
    }

    /// [`Rate::take`] for clients that something was [heard](Rate::hear) of; others may.
    pub fn take_if_known(&mut self, address: IpAddr, now: Instant) -> bool {
        self.buckets.full_at.get(address.into()).is_none() || self.take(address, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_bucket_says_when_it_is_low() {
        let (mut rate, now) = (Rate::new(10, 4), Instant::now());
        let asked: Vec<RateDecision> = (0..5).map(|_| rate.ask(HERE, now)).collect();
        assert_eq!(
            asked,
            [
                RateDecision::Within,
                RateDecision::Within,
                RateDecision::Low,
                RateDecision::Low,
                RateDecision::Over
            ]
        );
        assert_eq!((rate.used(HERE, now), rate.used(HERE, now + MS * 150)), (MS * 400, MS * 250));
        assert_eq!(rate.used(HERE, now + MS * 1000), Duration::ZERO);
    }

    #[test]
    fn an_empty_bucket_says_when_there_is_a_token() {
        let (mut buckets, now) = (Buckets::new(MS * 100, 2, 2), Instant::now());
        let took: Vec<_> = (0..3).map(|_| buckets.take('a', now)).collect();
        assert_eq!(took, [Ok(MS * 100), Ok(MS * 200), Err(MS * 100)]);
        assert_eq!(buckets.take('a', now + MS * 99), Err(MS));
        assert_eq!(buckets.take('b', now), Ok(MS * 100));
        assert_eq!(buckets.take('a', now + MS * 100), Ok(MS * 200));
        // `b` was not heard of for longest.
        assert_eq!(buckets.take('c', now + MS * 100), Ok(MS * 100));
        assert_eq!(buckets.take('a', now + MS * 100), Err(MS * 100));
        assert_eq!(buckets.take('b', now + MS * 100), Ok(MS * 100));
    }

    #[test]
    fn what_is_heard_counts_and_no_more_than_a_bucket() {
        let (mut rate, now) = (Rate::new(10, 4), Instant::now());
        assert!((0..9).all(|_| rate.take_if_known(HERE, now)), "nothing was heard of it");
        rate.record(HERE, MS * 300, now);
        rate.record(HERE, MS * 100, now);
        assert!(rate.take_if_known(HERE, now), "one is left");
        assert!(!rate.take_if_known(HERE, now));
        rate.record(HERE, Duration::MAX, now);
        assert!(!rate.take_if_known(HERE, now + MS * 99));
        assert!(rate.take_if_known(HERE, now + MS * 100));
    }
}

//! How many of all connections one range of addresses may hold, whatever it does with them.
//!
//! Runs in: gates, site workers, filters; pure. Sees: addresses of clients. Never: leaves a range without any, which
//! a small server's share of a tenth would.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2, "Slow read prevention": 25% of all connections
//! from a /8, 15% from a /16, 10% from a /24. For IPv6, /32, /48 and /56 take their place.
//!
//! Clients of many ranges can fill a server up although none of them has more than its share; the paper's infrequent
//! client then waits until one of them is done (4.4.2). Where it is known how many a server serves at once, it does
//! not: the last tenth is for the widest ranges that hold nothing.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::address::{AddressRange, ClientOrigin};
use crate::hash::SeededState;
use crate::network::Exempt;

/// The shares of the three sizes of range, the widest first: bits of the prefix, and thousandths of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// Of IPv4.
    pub v4: [(u8, u16); 3],
    /// Of IPv6: 64 bits at most.
    pub v6: [(u8, u16); 3],
}

impl Default for ShareLimits {
    fn default() -> Self {
        Self { v4: [(8, 250), (16, 150), (24, 100)], v6: [(32, 250), (48, 150), (56, 100)] }
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct Shares {
    limits: ShareLimits,
    capacity: u32,
    exempt: Exempt,
    /// LIMIT: three for each connection that is held.
    ranges: HashMap<AddressRange, u32, SeededState>,
    held: u32,
    /// From so many held on, there is only room for ranges that hold nothing.
    crowded: u32,
    /// The places that a range of each size may hold however small the share is, the widest first.
    least: [u32; 3],
}

/// The places reserved for ranges that hold nothing: one of so many that a server can serve at once.
const RESERVE: u32 = 10;

impl Shares {
    /// Nothing is held of `capacity` connections. The clients of `exempt` networks are not counted.
    pub fn new(limits: ShareLimits, capacity: u32, exempt: Exempt) -> Self {
        Self {
            limits,
            capacity,
            exempt,
            ranges: HashMap::default(),
            held: 0,
            crowded: u32::MAX,
            least: [1; 3],
        }
    }

    /// Lets a range hold so many in any case, by its size, the widest first. Of a small capacity, a share is one for
    /// each
    /// size, and one client then has that of all around it.
    pub fn at_least(mut self, least: [u32; 3]) -> Self {
        self.least = least;
        self
    }

    /// From now on, shares are of so many connections, which a server serves at once; what is held stays. If ranges are
    /// limited at all, a tenth is kept for those that hold nothing.
    pub fn serving(&mut self, capacity: u32) {
        self.capacity = capacity;
        let limited = self.limits.v4[0].1 < 1000;
        self.crowded = if limited { capacity - capacity / RESERVE } else { u32::MAX };
    }

    /// Counts a connection of `address` in, or names the widest of its ranges that is full.
    pub fn admit(&mut self, address: IpAddr) -> Result<(), AddressRange> {
        if self.exempt.contains(address) {
            return Ok(());
        }
        let ranges = self.ranges_of(address);
        match self.full(&ranges) {
            Some(range) => Err(range),
            None => {
                self.count_in(ranges, 1);
                Ok(())
            }
        }
    }

    /// Counts `number` at once of `address` in, or names the widest of its ranges that has no room for all of them.
    pub fn admit_all(&mut self, address: IpAddr, number: u32) -> Result<(), AddressRange> {
        if self.exempt.contains(address) {
            return Ok(());
        }
        let ranges = self.ranges_of(address);
        match ranges.iter().find(|(range, most)| self.count(*range).saturating_add(number) > *most) {
            Some((range, _)) => Err(*range),
            None => {
                self.count_in(ranges, number);
                Ok(())
            }
        }
    }

    /// Counts a connection of `address` in although its range may be full: one that is in service already.
    pub fn hold(&mut self, address: IpAddr) {
        if self.exempt.contains(address) {
            return;
        }
        self.count_in(self.ranges_of(address), 1);
    }

    /// Counts a connection of `address` out.
    pub fn release(&mut self, address: IpAddr) {
        self.release_all(address, 1);
    }

    /// Counts so many of `address` out, which were counted in.
    pub fn release_all(&mut self, address: IpAddr, number: u32) {
        if self.exempt.contains(address) {
            return;
        }
        for (range, _) in self.ranges_of(address) {
            let Some(count) = self.ranges.get_mut(&range) else {
                // Nothing of it is held: a peer has said twice that it is done.
                return;
            };
            *count -= number;
            if *count == 0 {
                self.ranges.remove(&range);
            }
        }
        self.held -= number;
    }

    /// Whether a connection of `address` would be admitted.
    pub fn may(&self, address: IpAddr) -> bool {
        self.exempt.contains(address) || self.full(&self.ranges_of(address)).is_none()
    }

    /// Whether those ranges that `range` is part of have room, as far as they have shares.
    pub fn has_room(&self, range: AddressRange) -> bool {
        let origin = ClientOrigin::from(range.first());
        let known = self.limits_of(origin).iter().filter(|(bits, _)| *bits <= range.bits()).count();
        self.full(&self.ranges_of_origin(origin)[..known]).is_none()
    }

    /// How many connections of a range that has a share are held.
    pub fn of(&self, range: AddressRange) -> u32 {
        self.count(range)
    }

    /// How many connections are held.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// The ranges that hold at least a tenth of all, heaviest first, and of equal ones the narrowest.
    pub fn ranges(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        let least = self.held.div_ceil(10).max(1);
        let mut ranges: Vec<(AddressRange, u32)> = self
            .ranges
            .iter()
            .filter(|(_, count)| **count >= least)
            .map(|(&range, &count)| (range, count))
            .collect();
        ranges.sort_by_key(|&(range, count)| (std::cmp::Reverse((count, range.bits())), range));
        ranges.truncate(at_most);
        ranges
    }

    /// The widest of these ranges, of which the first is the widest of all, that may have no more.
    fn full(&self, ranges: &[(AddressRange, u32)]) -> Option<AddressRange> {
        let crowded =
            self.held >= self.crowded && ranges.first().is_some_and(|(range, _)| self.count(*range) > 0);
        let full = |(at, (range, most)): (usize, &(AddressRange, u32))| {
            (at == 0 && crowded || self.count(*range) >= *most).then_some(*range)
        };
        ranges.iter().enumerate().find_map(full)
    }

    fn count_in(&mut self, ranges: [(AddressRange, u32); 3], number: u32) {
        for (range, _) in ranges {
            *self.ranges.entry(range).or_default() += number;
        }
        self.held += number;
    }

    fn count(&self, range: AddressRange) -> u32 {
        self.ranges.get(&range).copied().unwrap_or(0)
    }

    fn limits_of(&self, origin: ClientOrigin) -> &[(u8, u16); 3] {
        if origin.is_v6() { &self.limits.v6 } else { &self.limits.v4 }
    }

    /// How many connections a share of so many thousandths is.
    fn most(&self, share: u16, least: u32) -> u32 {
        let most = u64::from(self.capacity) * u64::from(share) / 1000;
        u32::try_from(most).unwrap_or(u32::MAX).max(least)
    }

    fn ranges_of(&self, address: IpAddr) -> [(AddressRange, u32); 3] {
        self.ranges_of_origin(ClientOrigin::from(address))
    }

    fn ranges_of_origin(&self, origin: ClientOrigin) -> [(AddressRange, u32); 3] {
        let limits = self.limits_of(origin);
        std::array::from_fn(|at| {
            let (bits, share) = limits[at];
            (origin.range(bits), self.most(share, self.least[at]))
        })
    }
}

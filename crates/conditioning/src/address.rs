//! Addresses of clients as the policies see them: a row of nibbles, and ranges that share their first ones.
//!
//! Runs in: gates, site workers, filters; pure. Sees: addresses, which a client chooses within what it owns. Never:
//! tells two addresses of one IPv6 /64 apart, which is what one client gets from its provider.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bits of an IPv6 address that belong to one client.
const CLIENT_V6_BITS: u8 = 64;

/// Whose something is: an IPv4 address (8 nibbles), or the /64 of an IPv6 address (16 nibbles).
///
/// An IPv4-mapped IPv6 address is the IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientOrigin {
    /// The nibbles, from the most significant one; those that an IPv4 address has not are zero.
    key: u64,
    v6: bool,
}

impl ClientOrigin {
    pub(crate) fn key(self) -> u64 {
        self.key
    }

    /// Whether it is of IPv6.
    pub fn is_v6(self) -> bool {
        self.v6
    }

    pub(crate) fn new(key: u64, v6: bool) -> Self {
        Self { key, v6 }
    }

    /// The range of its first `bits` bits, or all of it if it has fewer.
    pub fn range(self, bits: u8) -> AddressRange {
        let bits = bits.min(if self.v6 { CLIENT_V6_BITS } else { 32 });
        AddressRange { key: self.key & mask(bits), bits, v6: self.v6 }
    }
}

impl From<IpAddr> for ClientOrigin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self { key: u64::from(address.to_bits()) << 32, v6: false },
            IpAddr::V6(address) => Self { key: (address.to_bits() >> 64) as u64, v6: true },
        }
    }
}

/// The first `bits` of 64.
fn mask(bits: u8) -> u64 {
    u64::MAX.checked_shl(64 - u32::from(bits)).unwrap_or(0)
}

/// All addresses with the same first bits: at most 32 of IPv4, at most 64 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    key: u64,
    bits: u8,
    v6: bool,
}

impl Hash for AddressRange {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.key);
        state.write_u8(self.bits << 1 | u8::from(self.v6));
    }
}

impl AddressRange {
    /// Whether `address` is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        ClientOrigin::from(address).range(self.bits) == self
    }

    /// The client, if its addresses are those of one.
    pub fn origin(self) -> Option<ClientOrigin> {
        let whole = if self.v6 { CLIENT_V6_BITS } else { 32 };
        (self.bits == whole).then_some(ClientOrigin { key: self.key, v6: self.v6 })
    }

    /// How many bits its addresses share, of 32 or 128.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Its first address.
    pub fn first(self) -> IpAddr {
        match self.v6 {
            true => Ipv6Addr::from_bits(u128::from(self.key) << 64).into(),
            false => Ipv4Addr::from_bits((self.key >> 32) as u32).into(),
        }
    }

    /// The same as the two halves of an IPv6 address and a number of bits; IPv4 is mapped, its bits begin at 96.
    pub fn parts(self) -> (u64, u64, u8) {
        match self.v6 {
            true => (self.key, 0, self.bits),
            false => (0, 0xffff << 32 | self.key >> 32, self.bits + 96),
        }
    }

    /// The range of these [`AddressRange::parts`], if there is one.
    pub fn from_parts(high: u64, low: u64, bits: u8) -> Option<Self> {
        let mapped = high == 0 && low >> 32 == 0xffff && (96..=128).contains(&bits);
        let range = match mapped {
            true => Self { key: low << 32, bits: bits - 96, v6: false },
            false => Self { key: high, bits, v6: true },
        };
        let whole = range.bits <= CLIENT_V6_BITS && range.key & !mask(range.bits) == 0;
        (whole && (mapped || low == 0)).then_some(range)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> ClientOrigin {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn one_client_is_one_origin() {
        assert_eq!(origin("::ffff:10.1.2.3"), origin("10.1.2.3"));
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::2:3"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_ne!(origin("::"), origin("0.0.0.0"));
    }

    #[test]
    fn ranges_are_told_and_sent() {
        for (address, bits, text, sent) in [
            ("10.1.2.3", 16, "10.1.0.0/16", 112),
            ("10.1.2.3", 32, "10.1.2.3/32", 128),
            ("10.1.2.3", 0, "0.0.0.0/0", 96),
            ("2001:db8:1:2::3", 32, "2001:db8::/32", 32),
            ("2001:db8:1:2::3", 64, "2001:db8:1:2::/64", 64),
            ("2001:db8:1:2::3", 0, "::/0", 0),
        ] {
            let range = origin(address).range(bits);
            assert_eq!(range.to_string(), text);
            assert!(range.contains(address.parse().unwrap()));
            let (high, low, bits) = range.parts();
            assert_eq!(bits, sent);
            assert_eq!(AddressRange::from_parts(high, low, bits), Some(range));
        }
        assert_eq!(origin("10.1.2.3").range(u8::MAX).origin(), Some(origin("10.1.2.3")));
        assert_eq!(origin("2001:db8::1").range(u8::MAX).origin(), Some(origin("2001:db8::")));
        assert_eq!(origin("10.1.2.3").range(31).origin(), None);
        assert_eq!(origin("2001:db8::1").range(32).origin(), None);
        assert!(!origin("10.1.2.3").range(16).contains("10.2.2.3".parse().unwrap()));
        assert!(!origin("10.1.2.3").range(0).contains("::1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_range_is_refused() {
        assert_eq!(AddressRange::from_parts(1, 0, 32), None);
        assert_eq!(AddressRange::from_parts(0, 0, 65), None);
        assert_eq!(AddressRange::from_parts(0, 1, 64), None);
        assert_eq!(AddressRange::from_parts(0, 0xffff_0a00_0001, 112), None);
        assert_eq!(AddressRange::from_parts(0, 0xffff_0a00_0001, 129), None);
    }
}

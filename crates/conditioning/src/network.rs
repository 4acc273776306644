//! Networks as an operator writes them, and those whose clients have no shares, rates or bans.
//!
//! Runs in: gates, site workers, filters; pure. Sees: what the operator wrote. Never: takes an address with bits beyond
//! its prefix, which is a slip of the pen.
//!
//! The root process links no more than it must: the crate `config` has a check of its own, which also says what to
//! write instead, and passes on one spelling.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpNetwork {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no [`IpNetwork`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// The text before the slash is no address.
    Address(String),
    /// The text after the slash is no number of bits, or more than the limit.
    Bits {
        /// The text that is there.
        found: String,
        /// The most there may be: 32 or 128.
        limit: u8,
    },
    /// The address has bits beyond the prefix; this is what was probably meant.
    Beyond(IpNetwork),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(found) => {
                write!(f, "`{found}` is no address; a network is written like 10.0.0.0/8 or 2001:db8::/32")
            }
            Self::Bits { found, limit } => write!(f, "`{found}` is no number of bits from 0 to {limit}"),
            Self::Beyond(network) => write!(f, "it has bits beyond its prefix; did you mean {network}?"),
        }
    }
}

impl std::error::Error for NetworkError {}

impl IpNetwork {
    /// Whether `address` is in it; an IPv4-mapped IPv6 address is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        cut(address.to_canonical(), self.bits) == self.address
    }
}

/// The address with all but its first `bits` taken away.
fn cut(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl FromStr for IpNetwork {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address(address.into()))?;
        let limit = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => limit,
            Some(found) => found
                .parse()
                .ok()
                .filter(|bits| *bits <= limit && !found.starts_with('+'))
                .ok_or_else(|| NetworkError::Bits { found: found.into(), limit })?,
        };
        let network = Self { address: cut(address, bits), bits };
        if network.address != address {
            return Err(NetworkError::Beyond(network));
        }
        Ok(network.canonical())
    }
}

impl IpNetwork {
    /// An IPv4-mapped network is the IPv4 network.
    fn canonical(self) -> Self {
        match self.address.to_canonical() {
            address @ IpAddr::V4(_) if self.address.is_ipv6() && self.bits >= 96 => {
                Self { address, bits: self.bits - 96 }
            }
            _ => self,
        }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The networks whose clients have no shares, rates and bans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt(pub Vec<IpNetwork>);

impl Exempt {
    /// Whether `address` is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> IpNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_holds_its_addresses() {
        for (text, within, beyond) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::10.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
            ("::/0", "2001:db8::1", "203.0.113.9"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::ffff:10.0.0.0/104", "10.1.1.1", "11.1.1.1"),
            ("::1/128", "::1", "::2"),
        ] {
            assert!(network(text).contains(within.parse().unwrap()), "{text} {within}");
            assert!(!network(text).contains(beyond.parse().unwrap()), "{text} {beyond}");
        }
        assert_eq!(network("10.0.0.0/8").to_string(), "10.0.0.0/8");
        assert_eq!(network("::1").to_string(), "::1/128");
    }

    #[test]
    fn an_error_says_what_is_wrong() {
        for (text, message) in [
            ("ten", "`ten` is no address; a network is written like 10.0.0.0/8 or 2001:db8::/32"),
            ("10.0.0.0/33", "`33` is no number of bits from 0 to 32"),
            ("10.0.0.0/+8", "`+8` is no number of bits from 0 to 32"),
            ("::/129", "`129` is no number of bits from 0 to 128"),
            ("::/", "`` is no number of bits from 0 to 128"),
            ("10.1.0.0/8", "it has bits beyond its prefix; did you mean 10.0.0.0/8?"),
        ] {
            assert_eq!(text.parse::<IpNetwork>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn exempt_is_what_any_network_holds() {
        let exempt = Exempt(vec![network("127.0.0.0/8"), network("::1")]);
        assert!(exempt.contains("127.3.2.1".parse().unwrap()));
        assert!(exempt.contains("::1".parse().unwrap()));
        assert!(!exempt.contains("128.0.0.0".parse().unwrap()));
        assert!(!Exempt::default().contains("127.0.0.1".parse().unwrap()));
    }
}

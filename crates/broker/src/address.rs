//! Addresses as programs pass them to `connect`.
//!
//! Runs in: the broker; pure. Sees: bytes from a service's memory, untrusted. Never: reads beyond the stated length, or
//! takes an address of another family for one of IP.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::AddressFamily;

/// Bytes of the longest address that is looked at, `sockaddr_in6`.
pub const ADDRESS_MAX: usize = 28;
/// Bytes of `sockaddr_in`.
const V4: usize = 16;
/// Bytes of `sockaddr_in6` without its scope, which the kernel takes as well (RFC 2133).
const V6: usize = 24;
/// Bytes of the longest address that the kernel takes, `sockaddr_storage`.
const STORAGE: i32 = 128;

/// The peer that a socket is to be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Nothing: an earlier peer is to go.
    None,
    /// This address; of IPv6 with its scope.
    At(SocketAddr, u32),
}

/// How many bytes are to be read of an address of which a program says that it has `length`.
///
/// # Errors
/// `EINVAL`: it cannot have.
pub fn readable(length: u64) -> Result<usize, Errno> {
    // The kernel takes the lower half, as a signed number.
    match length as u32 as i32 {
        length @ 2..=STORAGE => Ok(ADDRESS_MAX.min(length as usize)),
        _ => Err(Errno::INVAL),
    }
}

/// Reads an address.
///
/// # Errors
/// `EINVAL`: it is too short for its family. `EACCES`: its family is not of IP.
pub fn parse(bytes: &[u8]) -> Result<Peer, Errno> {
    let family = u16::from_ne_bytes(part(bytes, 0)?);
    match AddressFamily::from_raw(family) {
        AddressFamily::UNSPEC => Ok(Peer::None),
        AddressFamily::INET if bytes.len() >= V4 => {
            let ip = Ipv4Addr::from(part::<4>(bytes, 4)?);
            Ok(Peer::At(SocketAddr::new(ip.into(), port(bytes)?), 0))
        }
        AddressFamily::INET6 if bytes.len() >= V6 => {
            let ip = Ipv6Addr::from(part::<16>(bytes, 8)?);
            let scope = part(bytes, V6).map_or(0, u32::from_ne_bytes);
            Ok(Peer::At(SocketAddr::new(ip.into(), port(bytes)?), scope))
        }
        AddressFamily::INET | AddressFamily::INET6 => Err(Errno::INVAL),
        _ => Err(Errno::ACCESS),
    }
}

fn port(bytes: &[u8]) -> Result<u16, Errno> {
    part(bytes, 2).map(u16::from_be_bytes)
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Errno> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(Errno::INVAL)
}

/// Reads any bytes, and asserts what must hold of them; for `fuzz/targets/socket_address.rs`.
///
/// # Panics
/// It does not hold.
pub fn check(data: &[u8]) {
    if let Some(length) = data.first_chunk::<8>() {
        let length = u64::from_le_bytes(*length);
        assert!(
            readable(length).is_err() || readable(length).is_ok_and(|read| (2..=ADDRESS_MAX).contains(&read))
        );
    }
    let whole = parse(data);
    if let Ok(Peer::At(address, scope)) = whole {
        assert!(data.len() >= if address.is_ipv4() { V4 } else { V6 });
        assert!(address.is_ipv6() || scope == 0);
    }
    // Bytes beyond the longest address change nothing.
    assert_eq!(whole, parse(&data[..data.len().min(ADDRESS_MAX)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(length: usize) -> Vec<u8> {
        let mut bytes = AddressFamily::INET.as_raw().to_ne_bytes().to_vec();
        bytes.extend([0x15, 0x38, 10, 1, 2, 3]);
        bytes.resize(length, 0);
        bytes
    }

    fn v6(length: usize) -> Vec<u8> {
        let mut bytes = AddressFamily::INET6.as_raw().to_ne_bytes().to_vec();
        bytes.extend([1, 187, 9, 9, 9, 9]);
        bytes.extend("fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.resize(length, 0);
        bytes
    }

    #[test]
    fn addresses_are_read_as_the_kernel_does() {
        let at = |text: &str, scope| Ok(Peer::At(text.parse().unwrap(), scope));
        assert_eq!(parse(&v4(16)), at("10.1.2.3:5432", 0));
        assert_eq!(parse(&v4(28)), at("10.1.2.3:5432", 0));
        assert_eq!(parse(&v6(28)), at("[fe80::1]:443", 7));
        assert_eq!(parse(&v6(24)), at("[fe80::1]:443", 0));
        assert_eq!(parse(&[0, 0]), Ok(Peer::None));
        assert_eq!(parse(&[0; 16]), Ok(Peer::None));
    }

    #[test]
    fn what_is_short_or_of_another_family_is_refused() {
        for short in [&v4(15)[..], &v4(2), &v6(23), &v6(2), &[0], &[]] {
            assert_eq!(parse(short), Err(Errno::INVAL), "{short:?}");
        }
        for family in [AddressFamily::UNIX, AddressFamily::NETLINK, AddressFamily::from_raw(u16::MAX)] {
            let mut bytes = v6(28);
            bytes[..2].copy_from_slice(&family.as_raw().to_ne_bytes());
            assert_eq!(parse(&bytes), Err(Errno::ACCESS));
        }
        (0..64).for_each(|length| check(&v6(length)));
    }

    #[test]
    fn lengths_are_the_kernels() {
        assert_eq!([2, 16, 28, 128].map(|length| readable(length).unwrap()), [2, 16, 28, 28]);
        for bad in [0, 1, 129, u64::from(u32::MAX), 1 << 31, 1 << 32] {
            assert_eq!(readable(bad), Err(Errno::INVAL), "{bad}");
        }
        assert_eq!(readable(1 << 32 | 16), Ok(16));
    }
}

//! The PROXY protocol, versions 1 and 2: who a connection really comes from, as the proxy before us says.
//!
//! Runs in: gates, which read it, and site workers, which write it; pure. Untrusted input: the first bytes of a
//! connection from a peer that is trusted to say it, and may be compromised. Must never: panic, or take for a header
//! what another reader would take for something else.
//!
//! Source: "The PROXY protocol, versions 1 & 2" (HAProxy).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
const WORD: &[u8; 6] = b"PROXY ";
/// LIMIT: the longest line of version 1, its end included.
const LINE_MAX: usize = 107;
/// LIMIT: what version 2 may carry beside the addresses; more than all of its extensions with a certificate's names.
const EXTRA_MAX: usize = 2048;

/// The meaning of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyPreamble {
    /// The beginning of a header.
    Partial,
    /// No header, or a malformed one.
    Bad(&'static str),
    /// A header of `length` bytes; `None` for a connection of the proxy's own, such as a check of our health.
    Header {
        /// Bytes of the header.
        length: usize,
        /// The client, and the address that it connected to.
        ends: Option<(SocketAddr, SocketAddr)>,
    },
}

/// Reads the header that `data` begins with.
pub fn parse(data: &[u8]) -> ProxyPreamble {
    if begins(data, SIGNATURE) {
        return binary(data);
    }
    if begins(data, WORD) {
        return line(data);
    }
    ProxyPreamble::Bad("no PROXY header")
}

/// Whether `data` begins with `sign`, as far as it goes.
fn begins(data: &[u8], sign: &[u8]) -> bool {
    let length = data.len().min(sign.len());
    data[..length] == sign[..length]
}

fn line(data: &[u8]) -> ProxyPreamble {
    let window = &data[..data.len().min(LINE_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if data.len() < LINE_MAX {
            ProxyPreamble::Partial
        } else {
            ProxyPreamble::Bad("a line without end")
        };
    };
    let length = end + 2;
    let Ok(text) = std::str::from_utf8(&data[..end]) else {
        return ProxyPreamble::Bad("a line that is not text");
    };
    let words: Vec<&str> = text.split(' ').collect();
    let ends = match words[..] {
        ["PROXY", "UNKNOWN", ..] => return ProxyPreamble::Header { length, ends: None },
        ["PROXY", "TCP4", from, to, from_port, to_port] => {
            pair(from.parse::<Ipv4Addr>().ok(), to.parse::<Ipv4Addr>().ok(), from_port, to_port)
        }
        ["PROXY", "TCP6", from, to, from_port, to_port] => {
            pair(from.parse::<Ipv6Addr>().ok(), to.parse::<Ipv6Addr>().ok(), from_port, to_port)
        }
        _ => None,
    };
    match ends {
        Some(ends) => ProxyPreamble::Header { length, ends: Some(ends) },
        None => ProxyPreamble::Bad("a line that is no PROXY header"),
    }
}

fn pair<A: Into<IpAddr>>(
    from: Option<A>,
    to: Option<A>,
    from_port: &str,
    to_port: &str,
) -> Option<(SocketAddr, SocketAddr)> {
    Some((SocketAddr::new(from?.into(), port(from_port)?), SocketAddr::new(to?.into(), port(to_port)?)))
}

/// `u16::from_str` would take a plus sign and zeros before it.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

fn binary(data: &[u8]) -> ProxyPreamble {
    let Some((fixed, rest)) = data.split_first_chunk::<16>() else {
        return ProxyPreamble::Partial;
    };
    let [.., command, family, high, low] = *fixed;
    let announced = usize::from(u16::from_be_bytes([high, low]));
    if announced > EXTRA_MAX {
        return ProxyPreamble::Bad("a header that is too long");
    }
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return ProxyPreamble::Bad("another version or command"),
    };
    let Some(rest) = rest.get(..announced) else {
        return ProxyPreamble::Partial;
    };
    let length = fixed.len() + announced;
    if is_local {
        return ProxyPreamble::Header { length, ends: None };
    }
    let ends = match family {
        0x11 => rest.first_chunk::<12>().map(|bytes| {
            let [a, b, c, d, e, f, g, h, ports @ ..] = *bytes;
            ends([a, b, c, d].into(), [e, f, g, h].into(), ports)
        }),
        0x21 => rest.first_chunk::<36>().map(|bytes| {
            let (from, others) = bytes.split_at(16);
            let (to, ports) = others.split_at(16);
            let address = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).unwrap_or_default().into();
            ends(address(from), address(to), ports.try_into().unwrap_or_default())
        }),
        // Not a stream over IP: whoever it is, we have no name for it.
        _ => return ProxyPreamble::Header { length, ends: None },
    };
    match ends {
        Some(ends) => ProxyPreamble::Header { length, ends: Some(ends) },
        None => ProxyPreamble::Bad("a header without its addresses"),
    }
}

fn ends(from: IpAddr, to: IpAddr, ports: [u8; 4]) -> (SocketAddr, SocketAddr) {
    let [from_high, from_low, to_high, to_low] = ports;
    let from_port = u16::from_be_bytes([from_high, from_low]);
    (SocketAddr::new(from, from_port), SocketAddr::new(to, u16::from_be_bytes([to_high, to_low])))
}

/// Both addresses, in one family.
fn alike(peer: SocketAddr, local: SocketAddr) -> (IpAddr, IpAddr) {
    let (from, to) = (peer.ip().to_canonical(), local.ip().to_canonical());
    let wide = |ip| match ip {
        IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
        other => other,
    };
    if from.is_ipv4() == to.is_ipv4() { (from, to) } else { (wide(from), wide(to)) }
}

/// The line of version 1 for a connection of `peer` to `local`.
pub fn version1(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (from, to) = alike(peer, local);
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {from} {to} {} {}\r\n", peer.port(), local.port()).into_bytes()
}

/// The header of version 2 for a connection of `peer` to `local`.
pub fn version2(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (mut out, mut addresses) = (SIGNATURE.to_vec(), Vec::new());
    let (from, to) = alike(peer, local);
    for ip in [from, to] {
        match ip {
            IpAddr::V4(address) => addresses.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => addresses.extend_from_slice(&address.octets()),
        }
    }
    addresses.extend_from_slice(&peer.port().to_be_bytes());
    addresses.extend_from_slice(&local.port().to_be_bytes());
    out.extend_from_slice(&[0x21, if from.is_ipv4() { 0x11 } else { 0x21 }]);
    out.extend_from_slice(&(addresses.len() as u16).to_be_bytes());
    out.extend_from_slice(&addresses);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_every_beginning_of_it_is_partial() {
        let pairs = [("192.0.2.1:1", "198.51.100.2:65535"), ("[2001:db8::1]:7", "[::1]:80")];
        for (peer, local) in pairs {
            for written in [version1(at(peer), at(local)), version2(at(peer), at(local))] {
                for length in 0..written.len() {
                    assert_eq!(parse(&written[..length]), ProxyPreamble::Partial, "{length} of {written:?}");
                }
                let followed = [&written[..], b"GET / HTTP/1.1\r\n"].concat();
                let ends = Some((at(peer), at(local)));
                assert_eq!(parse(&followed), ProxyPreamble::Header { length: written.len(), ends });
            }
        }
    }

    #[test]
    fn two_families_become_one() {
        let written = version1(at("192.0.2.1:5"), at("[::1]:80"));
        assert_eq!(written, b"PROXY TCP6 ::ffff:192.0.2.1 ::1 5 80\r\n");
    }

    #[test]
    fn connections_of_the_proxy_itself_have_no_client() {
        assert_eq!(parse(b"PROXY UNKNOWN\r\nx"), ProxyPreamble::Header { length: 15, ends: None });
        let local = [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat();
        assert_eq!(parse(&local), ProxyPreamble::Header { length: 16, ends: None });
    }

    #[test]
    fn everything_else_is_refused() {
        let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 120]].concat();
        let bad: [&[u8]; 12] = [
            b"GET / HTTP/1.1\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 1 70000\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP4 1.2.3.4  5.6.7.8 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n",
            b"PROXY\r\n",
            &long,
            b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04aaaa",
        ];
        for bytes in bad {
            assert!(matches!(parse(bytes), ProxyPreamble::Bad(_)), "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}

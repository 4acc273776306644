//! Networks: an address and how many of its bits count (`10.0.0.0/8`, `2001:db8::/32`).
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: strings of the operator's file. Must never: take
//! a network that has bits which do not count, since nobody knows which of the two was meant.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::KeyFault;

/// Every client.
pub(crate) const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// A network in the one spelling that is passed on; an address alone is the network of that address.
pub(crate) fn network(text: &str) -> Result<String, KeyFault> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let Ok(address) = address.parse::<IpAddr>() else {
        let rule = "a network is an IP address, `/` and a number of bits";
        let help = match text {
            "all" => "write `\"all\"` without the brackets".to_owned(),
            "localhost" => "this machine is `\"127.0.0.0/8\", \"::1\"`".to_owned(),
            _ => "write for example `\"10.0.0.0/8\"`".to_owned(),
        };
        return Err(KeyFault::with_help(rule, help));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => most,
        Some(bits) => number(bits).filter(|bits| *bits <= most).ok_or_else(|| too_many(address, most))?,
    };
    if let IpAddr::V6(v6) = address
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        let inner = bits.saturating_sub(96);
        let rule = "clients of IPv4 are known by their IPv4 address";
        return Err(KeyFault::with_help(rule, format!("write `\"{}/{inner}\"`", masked(v4.into(), inner))));
    }
    let network = masked(address, bits);
    match network == address {
        true => Ok(format!("{network}/{bits}")),
        false => {
            let rule = format!("the address has bits set behind the first {bits}");
            Err(KeyFault::with_help(rule, format!("write `\"{network}/{bits}\"`, or `\"{address}/{most}\"`")))
        }
    }
}

fn too_many(address: IpAddr, most: u32) -> KeyFault {
    let kind = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    KeyFault::new(format!("a network of {kind} has 0 to {most} bits"))
}

/// Digits alone, and few: `parse` would take a sign as well.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The address with all bits but the first `bits` cleared.
fn masked(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_one_spelling() {
        for (text, network_of) in [
            ("127.0.0.0/8", "127.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("192.0.2.128/25", "192.0.2.128/25"),
            ("::/0", "::/0"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(network(text).as_deref(), Ok(network_of), "{text}");
        }
    }

    #[test]
    fn networks_refused() {
        for bad in [
            "",
            "/8",
            "10",
            "10/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/08x",
            "::/129",
            "[::1]/128",
            "localhost/8",
            "10.0.0.1/8",
            "2001:db8::1/32",
            "0.0.0.1/0",
            "10.0.0.0/8/8",
            " 10.0.0.0/8",
        ] {
            assert!(network(bad).is_err(), "{bad}");
        }
        let help = |text| network(text).unwrap_err().help.unwrap();
        assert_eq!(help("10.1.2.3/8"), "write `\"10.0.0.0/8\"`, or `\"10.1.2.3/32\"`");
        assert_eq!(help("::ffff:10.0.0.0/104"), "write `\"10.0.0.0/8\"`");
    }
}

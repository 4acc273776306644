//! Grants of the network: `tcp:5432`, `tcp:10.0.0.5:5432`, `tcp:[fd00::/8]:443`, `udp`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: strings of the operator's file. Must never: take a
//! name for a host, since whoever answers for the name would decide where a service may connect to.

use super::{KeyFault, networks};
use crate::schema::TcpGrant;

const EXAMPLE: &str = "write for example `\"tcp:5432\"`, or `\"tcp:10.0.0.5:5432\"` for one host";

/// Where a grant lets a service connect to; `None` for `udp`.
pub(crate) fn network_grant(text: &str) -> Result<Option<TcpGrant>, KeyFault> {
    match text.strip_prefix("tcp:") {
        Some(rest) => tcp(rest).map(Some),
        None if text == "udp" => Ok(None),
        None => {
            let rule = "a network grant is `tcp:` and a port to connect to, with hosts before the port or without, or \
                        `udp`";
            Err(KeyFault::with_help(rule, EXAMPLE))
        }
    }
}

fn tcp(text: &str) -> Result<TcpGrant, KeyFault> {
    let (hosts, port) = match text.rsplit_once(':') {
        Some((hosts, port)) => (Some(hosts), port),
        None => (None, text),
    };
    let network = hosts.map(hosts_of).transpose()?;
    // `parse` would take a sign as well.
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(port) if port > 0 && digits => Ok(TcpGrant { network, port }),
        _ => Err(KeyFault::with_help("a port is a number from 1 to 65535", EXAMPLE)),
    }
}

fn hosts_of(text: &str) -> Result<String, KeyFault> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|inner| inner.contains(':')),
        None => Some(text).filter(|text| !text.contains(':')),
    };
    let Some(bare) = bare else {
        return Err(KeyFault::with_help(
            "an IPv6 address is written in brackets",
            "write for example `\"tcp:[fd00::1]:443\"`",
        ));
    };
    if bare.bytes().any(|byte| byte.is_ascii_alphabetic()) && !bare.contains(':') {
        let rule =
            "hosts of a grant are IP addresses or networks, as whoever answers for a name could change it";
        return Err(KeyFault::with_help(
            rule,
            "write the address, such as `\"tcp:10.0.0.5:5432\"`, or no host",
        ));
    }
    networks::network(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (text, network, port) in [
            ("tcp:5432", None, 5432),
            ("tcp:10.0.0.5:5432", Some("10.0.0.5/32"), 5432),
            ("tcp:10.0.0.0/8:1", Some("10.0.0.0/8"), 1),
            ("tcp:[fd00::1]:443", Some("fd00::1/128"), 443),
            ("tcp:[fd00::/8]:65535", Some("fd00::/8"), 65535),
        ] {
            let grant = TcpGrant { network: network.map(str::to_owned), port };
            assert_eq!(network_grant(text), Ok(Some(grant)), "{text}");
        }
        assert_eq!(network_grant("udp"), Ok(None));
    }

    #[test]
    fn grants_refused() {
        for text in [
            "",
            "tcp",
            "tcp:",
            "tcp:0",
            "tcp:65536",
            "tcp:+80",
            "TCP:80",
            "udp:53",
            "tcp:localhost:80",
            "tcp::80",
            "tcp:10.0.0.5:",
            "tcp:10.0.0.5/8:80",
            "tcp:fd00::1:443",
            "tcp:[fd00::1:443",
            "tcp:[10.0.0.5]:80",
            "tcp:[]:80",
            "tcp:10.0.0.5/33:80",
            "tcp:[::ffff:10.0.0.5]:80",
            "tcp: 10.0.0.5:80",
        ] {
            assert!(network_grant(text).is_err(), "{text}");
        }
    }
}

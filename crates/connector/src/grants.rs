//! The grants of a service: ports of networks by TCP, and UDP.
//!
//! Runs in: the connector of a service. Sees: addresses that the service wants to reach. Never: allows what the
//! launcher has not named.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use conditioning::{IpNetwork, NetworkError};

/// The grants of one service.
#[derive(Debug, Default)]
pub struct Grants {
    tcp: Vec<(IpNetwork, u16)>,
    udp: bool,
}

impl Grants {
    /// Adds `port` of the hosts in `network`, by TCP.
    ///
    /// # Errors
    /// `network` is none.
    pub fn add(&mut self, network: &str, port: u16) -> Result<(), NetworkError> {
        self.tcp.push((network.parse()?, port));
        Ok(())
    }

    /// Adds UDP.
    pub fn add_udp(&mut self) {
        self.udp = true;
    }

    /// Whether sockets of the kind may be had at all.
    pub fn has(&self, datagram: bool) -> bool {
        if datagram { self.udp } else { !self.tcp.is_empty() }
    }

    /// Whether a socket of the kind may be connected to `address`, which is [`plain`].
    pub fn allows(&self, datagram: bool, address: SocketAddr) -> bool {
        let granted =
            |(network, port): &(IpNetwork, u16)| *port == address.port() && network.contains(address.ip());
        if datagram { self.udp } else { self.tcp.iter().any(granted) }
    }
}

/// The address that the kernel would connect to: IPv4 where IPv6 stands for it, and this machine where none is said.
///
/// SECURITY: what is checked is what is then connected to, so that there is one reading of it.
pub fn plain(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The lines by which an operator would grant this.
pub fn remedy(datagram: bool, address: SocketAddr) -> String {
    if datagram { "\"udp\"".into() } else { format!("\"tcp:{address}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(list: &[(&str, u16)]) -> Grants {
        let mut grants = Grants::default();
        list.iter().for_each(|(network, port)| grants.add(network, *port).unwrap());
        grants
    }

    fn allows(grants: &Grants, address: &str) -> bool {
        grants.allows(false, plain(address.parse().unwrap()))
    }

    #[test]
    fn a_port_of_a_network_is_allowed_and_no_other() {
        let some = grants(&[("10.0.0.0/8", 5432), ("fd00::/8", 443), ("192.0.2.1", 80)]);
        for fine in ["10.1.2.3:5432", "[::ffff:10.1.2.3]:5432", "[fd12::1]:443", "192.0.2.1:80"] {
            assert!(allows(&some, fine), "{fine}");
        }
        for bad in
            ["10.1.2.3:443", "11.0.0.1:5432", "[fe80::1]:443", "192.0.2.2:80", "0.0.0.0:5432", "[::]:443"]
        {
            assert!(!allows(&some, bad), "{bad}");
        }
        assert!(some.has(false) && !some.has(true));
        assert!(!some.allows(true, "10.1.2.3:5432".parse().unwrap()));
        assert!(some.add_bad("10.0.0.1/8"));
    }

    impl Grants {
        fn add_bad(mut self, network: &str) -> bool {
            self.add(network, 1).is_err()
        }
    }

    #[test]
    fn any_host_is_any_of_the_family() {
        let v4 = grants(&[("0.0.0.0/0", 1)]);
        assert!(allows(&v4, "192.0.2.1:1") && allows(&v4, "[::ffff:192.0.2.1]:1") && !allows(&v4, "[::1]:1"));
        let v6 = grants(&[("::/0", 1)]);
        assert!(allows(&v6, "[2001:db8::1]:1"));
        assert!(!allows(&v6, "192.0.2.1:1") && !allows(&v6, "[::ffff:192.0.2.1]:1"));
    }

    #[test]
    fn no_host_is_this_machine() {
        let local = grants(&[("127.0.0.0/8", 1), ("::1", 2)]);
        for fine in ["0.0.0.0:1", "[::ffff:0.0.0.0]:1", "[::]:2"] {
            assert!(allows(&local, fine), "{fine}");
        }
        assert!(!allows(&grants(&[("0.0.0.0/1", 2)]), "0.0.0.0:1"));
        assert!(!allows(&grants(&[("0.0.0.0/8", 1)]), "0.0.0.0:1"), "it would be connected to 127.0.0.1");
    }

    #[test]
    fn udp_is_granted_as_a_whole() {
        let mut grants = Grants::default();
        grants.add_udp();
        assert!(grants.has(true) && !grants.has(false));
        assert!(grants.allows(true, "192.0.2.1:53".parse().unwrap()));
    }
}

//! This machine's own facts about names: `resolv.conf` and `hosts`.
//!
//! Sees: two files of the operator's. Never: opens one; the launcher does.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// The port of DNS servers.
const PORT: u16 = 53;
/// LIMIT: servers that are asked, as many as the C library asks (resolv.conf(5)).
const SERVERS_MAX: usize = 3;
/// LIMIT: bytes of `resolv.conf` and `hosts` that are read; lists of a million names for blocking are not of use here.
const FILE_BYTES_MAX: usize = 1 << 20;
/// LIMIT: domains of `search`, and the highest `ndots`, as of the C library (resolv.conf(5)).
const DOMAINS_MAX: usize = 6;
const DOTS_MAX: usize = 15;

/// The names that are known without asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalNames {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) domains: Vec<String>,
    pub(crate) ndots: Option<usize>,
    pub(crate) hosts: Vec<(String, IpAddr)>,
}

impl LocalNames {
    /// Takes what `resolv.conf` says, in place of what it said.
    pub fn resolver(&mut self, text: &str) {
        (self.servers, self.domains, self.ndots) = (Vec::new(), Vec::new(), None);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                // A zone (`fe80::1%eth0`) names an interface: such a server is left out.
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse().ok());
                    self.servers.extend(address.map(|address: IpAddr| SocketAddr::new(address, PORT)));
                }
                Some("search" | "domain") => {
                    let domains = words.map(|word| word.trim_matches('.').to_ascii_lowercase());
                    self.domains = domains.filter(|domain| !domain.is_empty()).take(DOMAINS_MAX).collect();
                }
                Some("options") => {
                    let mut dots =
                        words.filter_map(|word| word.strip_prefix("ndots:")?.parse::<usize>().ok());
                    self.ndots = dots.next_back().map(|dots| dots.min(DOTS_MAX)).or(self.ndots);
                }
                _ => {}
            }
        }
        self.servers.truncate(SERVERS_MAX);
    }

    /// Takes what `hosts` says, in place of what it said.
    pub fn hosts(&mut self, text: &str) {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let entries = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            let address: IpAddr = words.next()?.parse().ok()?;
            Some(words.map(move |name| (name.to_ascii_lowercase(), address)))
        });
        self.hosts = entries.flatten().collect();
    }
}

/// The text of a file, as far as it can be read and is text.
pub fn read(file: impl AsFd) -> String {
    let mut bytes = vec![0; FILE_BYTES_MAX];
    let mut length = 0;
    while let Ok(count) = rustix::io::read(&file, &mut bytes[length..]) {
        match count {
            0 => break,
            count => length += count,
        }
    }
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

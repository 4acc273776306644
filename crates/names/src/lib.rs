//! From the name of a server to its addresses: `hosts`, and the DNS servers that `resolv.conf` names.
//!
//! Runs in: the stapler, and connectors of sites whose servers have names. Untrusted input: answers of DNS servers.
//! Must never: send a datagram, which no jail lets out.
//!
//! Questions go over TCP, which every DNS server has to answer (RFC 7766 5). So an answer comes from the address that
//! was asked, and nobody on another path can forge one (RFC 5452 2): a process needs TCP to one port, and no socket of
//! UDP.

mod answer;
mod ask;
mod files;

pub use answer::{DnsAnswer, addresses, question};
pub use ask::{ResolveError, ResolvedAddresses, Search};
pub use files::{LocalNames, read};

/// LIMIT: addresses of a name.
pub const ADDRESSES_MAX: usize = 32;

#[cfg(test)]
mod tests;

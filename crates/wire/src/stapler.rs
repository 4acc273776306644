//! Messages about staples: what certificates are, and what their authorities' responders say of them.
//!
//! Runs in: the launcher, the signer, the stapler, site workers. Sees: in a site worker, answers that the stapler has
//! checked. Never: a word to the signer, or from a site: both ways are of one direction.

use crate::codec::{Bytes, DecodeError, Message, Text, messages};
use crate::tls::CERTIFICATE_MAX;

/// LIMIT: bytes of a responder's answer; those of large authorities have 300 to 2,500, with a delegate's certificate.
pub const STAPLE_MAX: usize = 16 * 1024;
/// Bytes of a SHA-256.
pub const HASH_BYTES: usize = 32;

/// What is said in the direction of a channel in which nothing is ever said: no bytes make such a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {}

impl Message for Nothing {
    fn encode(&self, _: &mut Vec<u8>) {
        match *self {}
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Err(bytes.get(1).map_or(DecodeError::Short, |kind| DecodeError::Type(*kind)))
    }
}

messages! {
    /// From the launcher to the stapler.
    pub enum LauncherToStapler {
        /// First of all: how often buffered log records are handed to the logger.
        1 => Limits { flush_ms: u32 },
        /// Responders may be asked at this port.
        2 => Port { port: u16 },
        /// There is a certificate `number` of `site`; people call it `name`.
        3 => Certificate { site: u16, number: u16, name: Text<512> },
        /// The file comes along that says which servers know names (`resolv.conf`); it replaces an earlier one.
        4 => Resolver {},
        /// The file comes along with names that are known (`hosts`); it replaces an earlier one.
        5 => Hosts {},
        /// All of the above has been said: ask.
        6 => Begin {},
        /// The channel from a signer comes along.
        7 => Signer {},
        /// The channel to a worker of `site` comes along.
        8 => Client { site: u16 },
        /// Asks for `Counters`.
        9 => Report {},
    }
}

messages! {
    /// From the signer to the stapler.
    pub enum SignerToStapler {
        /// Certificate `index` of `count` of the chain of certificate `number` of `site`, as in `SignerToSite`.
        1 => Certificate { site: u16, number: u16, index: u8, count: u8, der: Bytes<CERTIFICATE_MAX> },
    }
}

messages! {
    /// From the stapler to a site's worker.
    pub enum StaplerToSite {
        /// What is stapled to certificate `number`, as long as its first certificate has this SHA-256, and until this
        /// time (seconds since 1970).
        1 => Staple { number: u16, certificate: Bytes<HASH_BYTES>, until: u64, response: Bytes<STAPLE_MAX> },
    }
}

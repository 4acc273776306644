//! Messages about staples: what certificates are, and what their authorities' responders say of them.
//!
//! Runs in: the launcher, the signer, the stapler, site workers. Sees: in a site worker, answers that the stapler has
//! checked. Never: a word to the signer, or from a site: both ways are of one direction.

use crate::codec::{Bytes, DecodeError, Message, Text, choice, messages, record};
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
    fn layouts() -> Vec<crate::codec::Layout> {
        Vec::new()
    }
}

choice! {
    /// What is stapled to a certificate.
    pub enum Stapled {
        /// Nothing.
        0 => Nothing,
        /// That it is valid.
        1 => Good,
        /// That it is revoked.
        2 => Revoked,
    }
}

choice! {
    /// Why nothing is stapled, or nothing newer.
    pub enum Trouble {
        /// There is none.
        0 => None,
        /// The certificate names no responder.
        1 => NoResponder,
        /// Its responder cannot be asked by what its file and the configuration say.
        2 => Unaskable,
        /// The first answer has yet to come.
        3 => Awaited,
        /// The responder could not be reached, or has not answered in time and in form.
        4 => Unanswered,
        /// What it has answered is of no use.
        5 => Refused,
        /// It does not know the certificate.
        6 => Unknown,
        /// Nobody is asked, as `ocsp` is false. The launcher's own word.
        7 => Off,
        /// The stapler has not said. The launcher's own word.
        8 => Unsaid,
    }
}

record! {
    /// How it is with a certificate's staple.
    ///
    /// SECURITY: from the stapler, which hears the network. So it is numbers; the words that a responder may have moved
    /// are in the log, under the stapler's name.
    pub struct Staple {
        /// What is stapled now.
        stapled: Stapled,
        /// Why nothing, or nothing newer.
        trouble: Trouble,
        /// Until when it is stapled, in seconds since 1970.
        until: u64,
        /// When the responder was asked last, in seconds since 1970; 0 for never.
        asked: u64,
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
        /// All of the above has been said: ask. Certificates can be said later as well.
        6 => Begin {},
        /// The channel from a signer comes along.
        7 => Signer {},
        /// The channel to a worker of `site` comes along.
        8 => Client { site: u16 },
        /// Asks for `Counters`.
        9 => Report {},
        /// Asks for `Staple` of every certificate, and `StaplesEnd`.
        10 => ReportStaples {},
        /// There are no certificates of `site` any more.
        11 => Forget { site: u16 },
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

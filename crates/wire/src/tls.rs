//! Messages about TLS: what the signer is told, what sites ask it, and what becomes of certificates.
//!
//! Runs in: the launcher, the signer, site workers. Sees: in the signer, what a site that may be compromised asks to be
//! signed. Never: a private key; those go from the launcher to the signer as open files, and stay there.

use crate::codec::{Bytes, Text, choice, messages, record};

/// LIMIT: bytes of one certificate as a site gets it; those of authorities have 1 to 2 KiB.
pub const CERTIFICATE_MAX: usize = 16 * 1024;
/// LIMIT: certificates of one chain; browsers give up at about ten.
pub const CHAIN_MAX: usize = 16;
/// LIMIT: bytes that a site may have signed: 64 of randoms and the parameters of a key exchange (RFC 8422 5.4), or a
/// handshake's hash with its context (RFC 8446 4.4.3).
pub const SIGNED_MAX: usize = 512;
/// LIMIT: bytes of a signature: RSA with 4096 bits.
pub const SIGNATURE_MAX: usize = 512;
/// Bytes of a secret that tickets are encrypted under.
pub const TICKET_KEY_BYTES: usize = 32;

choice! {
    /// What became of a file with a certificate.
    pub enum Verdict {
        /// It is in use.
        0 => Good,
        /// The file cannot be read, or is far too long.
        1 => Unreadable,
        /// There is no private key in it, or more than one.
        2 => NoKey,
        /// Its key is of a kind or a size that is not for TLS, or broken.
        3 => BadKey,
        /// There is no certificate in it.
        4 => NoCertificate,
        /// A certificate in it is broken, or there are too many.
        5 => BadCertificate,
        /// No certificate in it belongs to the key.
        6 => Mismatch,
    }
}

impl Verdict {
    /// What it says of a file, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Good => "is in use",
            Self::Unreadable => "cannot be read, or is longer than 1 MiB",
            Self::NoKey => "needs exactly one private key (PEM, not encrypted)",
            Self::BadKey => {
                "has a key that is broken or of no use here; ECDSA P-256 or P-384, Ed25519, RSA of 2048 to 4096 bits are"
            }
            Self::NoCertificate => "has no certificate (PEM)",
            Self::BadCertificate => "has a broken certificate, or more than 16",
            Self::Mismatch => "has no certificate that belongs to its key",
        }
    }

    /// What to do about the file.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Good => "leave it as it is",
            Self::Unreadable => "write it as PEM, with whole sections from BEGIN to END",
            Self::NoKey => {
                "put the private key into it, or name the key's own file: `key = \"privkey.pem\"`; `openssl pkey` takes a \
                 password away"
            }
            Self::BadKey => {
                "make a key and have a certificate issued for it: `openssl genpkey -algorithm EC -pkeyopt \
                             ec_paramgen_curve:P-256`"
            }
            Self::NoCertificate => "put the site's certificate into it, as PEM, with its chain",
            Self::BadCertificate => "put the site's certificate and its chain into it, and nothing else",
            Self::Mismatch => "name the key that the certificate was issued for",
        }
    }
}

choice! {
    /// The kind of a key that the signer holds.
    pub enum KeyKind {
        /// ECDSA on P-256.
        0 => P256,
        /// ECDSA on P-384.
        1 => P384,
        /// Ed25519.
        2 => Ed25519,
        /// RSA.
        3 => Rsa,
    }
}

record! {
    /// What the signer holds in the place of a certificate.
    #[derive(Copy)]
    pub struct Holding {
        /// The kind of its key.
        kind: KeyKind,
        /// From when on the certificate is valid, in seconds since 1970.
        not_before: u64,
        /// Until when the certificate is valid, in seconds since 1970; 0 if there is none in this place.
        not_after: u64,
        /// Whether it names a host of its site.
        named: bool,
    }
}

/// Seconds of a day.
const DAY: u64 = 24 * 3600;
/// LIMIT: days before its end at which a certificate is warned of. Who renews automatically does so 30 days before it,
/// or after two thirds of a short life; one that is left is one that nobody renews.
const SOON_DAYS: u64 = 14;

/// Why clients refuse a certificate, or soon will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// Its end has passed.
    Expired,
    /// Its beginning has not come.
    NotYet,
    /// It is of hosts of somebody else's.
    OtherName,
    /// It ends after so many whole days.
    EndsIn(u64),
}

impl Objection {
    /// What is the matter, as in "it ...".
    pub fn words(self) -> String {
        match self {
            Self::Expired => "has expired: clients refuse it".to_owned(),
            Self::NotYet => "is not valid yet: clients refuse it".to_owned(),
            Self::OtherName => "names none of the site's hosts: clients refuse it".to_owned(),
            Self::EndsIn(0) => "ends within a day".to_owned(),
            Self::EndsIn(1) => "ends in 1 day".to_owned(),
            Self::EndsIn(days) => format!("ends in {days} days"),
        }
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Expired | Self::EndsIn(_) => "renew it",
            Self::NotYet => "wait for its first day, or set this machine's clock right",
            Self::OtherName => "use a certificate whose subject alternative names have one of them",
        }
    }
}

impl Holding {
    /// What is to be said against the certificate, at a time in seconds since 1970.
    pub fn objections(&self, now: u64) -> impl Iterator<Item = Objection> {
        let held = self.not_after != 0;
        let time = match self.not_after.saturating_sub(now) / DAY {
            _ if self.not_after <= now => Some(Objection::Expired),
            _ if self.not_before > now => Some(Objection::NotYet),
            left if left < SOON_DAYS => Some(Objection::EndsIn(left)),
            _ => None,
        };
        let name = (!self.named).then_some(Objection::OtherName);
        [time, name].into_iter().flatten().filter(move |_| held)
    }
}

impl Holding {
    /// Nothing.
    pub const NOTHING: Self = Self { kind: KeyKind::P256, not_before: 0, not_after: 0, named: false };
}

impl KeyKind {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::P256 => "ECDSA P-256",
            Self::P384 => "ECDSA P-384",
            Self::Ed25519 => "Ed25519",
            Self::Rsa => "RSA",
        }
    }
}

choice! {
    /// How sessions are resumed.
    pub enum Resume {
        /// By tickets.
        0 => Tickets,
        /// By what the worker remembers.
        1 => Stateful,
        /// Not at all.
        2 => Off,
    }
}

choice! {
    /// Whether clients show certificates.
    pub enum ClientAuth {
        /// Nobody asks them.
        0 => None,
        /// They may.
        1 => Request,
        /// They must.
        2 => Require,
    }
}

messages! {
    /// From the launcher to the signer.
    pub enum LauncherToSigner {
        /// The file of certificate `number` of `site` comes along; it replaces an earlier one, if it is good. The key
        /// is in it, unless `Key` has come before.
        1 => Certificate { site: u16, number: u16 },
        /// The channel of a worker of `site` comes along.
        2 => Client { site: u16 },
        /// Every certificate there is has been named.
        3 => Begin {},
        /// Asks for `Counters`.
        4 => Report {},
        /// The channel to a stapler comes along, which is to have all chains.
        5 => Stapler {},
        /// A host of a site, before the certificates that are to name it.
        6 => Host { site: u16, host: Text<255> },
        /// The file of the key of the certificate that comes next.
        7 => Key { site: u16, number: u16 },
        /// What a site is called, for the log. It is said of each site first, and nothing that was said of one of this
        /// number holds any more.
        8 => Name { site: u16, name: Text<63> },
        /// All that was said before is to be used now: `Confirmed` is the answer.
        9 => Confirm { ticket: u32 },
        /// A site has gone: its certificates and keys are forgotten when its last worker has gone.
        10 => Forget { site: u16 },
    }
}

messages! {
    /// From a site's worker to the signer: the whole of what it may ask for.
    pub enum SiteToSigner {
        /// Sign `message` with the key of certificate `number` of the site's own, as it was at `version`, by the TLS
        /// signature scheme `scheme`.
        1 => Sign { ticket: u32, number: u16, version: u32, scheme: u16, message: Bytes<SIGNED_MAX> },
    }
}

messages! {
    /// From the signer to a site's worker.
    pub enum SignerToSite {
        /// Certificate `index` of `count` of a chain, beginning with the site's own; its key is of the kind `kind`.
        1 => Certificate {
            number: u16, version: u32, kind: KeyKind, index: u8, count: u8, der: Bytes<CERTIFICATE_MAX>,
        },
        /// The answer to `Sign`.
        2 => Signed { ticket: u32, signature: Bytes<SIGNATURE_MAX> },
        /// The answer to `Sign`: no.
        3 => Refused { ticket: u32 },
    }
}

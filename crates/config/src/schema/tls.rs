//! What a valid configuration says of TLS.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: none, these are results. Must never: be built from
//! anything but a file that passed all checks.

use std::path::PathBuf;

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2.
    V12,
    /// 1.3.
    V13,
}

/// How a client takes up an earlier session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// By a ticket that it keeps, which every worker of the site can read.
    Tickets,
    /// By what the worker keeps, for as long as it lives.
    Stateful,
    /// Not at all.
    Off,
}

/// `[tls]`: what holds of TLS on every site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// How long a client whose records fail to decrypt is refused, in milliseconds; 0: not at all.
    pub tamper_ban_ms: u32,
    /// Networks that are never refused for this, as `ADDRESS/BITS`.
    pub tamper_exempt: Vec<String>,
    /// The value of `Strict-Transport-Security`; empty: none is sent.
    pub hsts: String,
    /// How often files of certificates are looked at for changes, in milliseconds.
    pub reread_ms: u32,
    /// How sessions are resumed.
    pub resumption: Resumption,
    /// Whether certificates' status is stapled, where they name a responder.
    pub ocsp: bool,
    /// The ports at which responders may be asked.
    pub ocsp_ports: Vec<u16>,
}

/// What becomes of clients without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are refused.
    Require,
    /// They are served without.
    Request,
}

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate with its chain, and with the key unless that has a file of its own.
    pub certificate: PathBuf,
    /// The private key, if it is not in the same file.
    pub key: Option<PathBuf>,
}

impl CertificateFiles {
    /// All of them.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.certificate).chain(&self.key)
    }
}

/// What a site with TLS has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTls {
    /// At least one.
    pub certificates: Vec<CertificateFiles>,
    /// The authorities that clients' certificates are checked by, if clients are asked for some.
    pub client_ca: Option<PathBuf>,
    /// Lists of what these authorities have revoked.
    pub client_crl: Vec<PathBuf>,
    /// What becomes of clients without one.
    pub client_certificates: ClientCertificates,
}

//! The addresses and properties of the connection that a request came on.
//!
//! Untrusted input: none. Must never: change while the connection lasts.

use std::net::SocketAddr;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnInfo {
    /// The client's.
    pub peer: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// Whether the client's connection is under TLS.
    pub tls: bool,
    /// Where the worker of another site, which has the certificate of our host, does TLS and has the client's
    /// connection: the version of HTTP by which the client asks, as [`crate::AccessRecord::minor`] has it.
    pub relayed: Option<u8>,
}

impl ConnInfo {
    /// The scheme by which the client asks.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

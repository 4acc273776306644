//! How a connection under TLS begins: with what the client has sent so far, to begin again where there is no signature
//! yet.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the first bytes of a connection. Must never: send a
//! client the beginnings of two answers.
//!
//! rustls wants a signature at once. Where the signer does not give one in time, the connection of rustls is of no use
//! any more, but nothing of the answer has left: another one that reads the same bytes makes another answer.

use std::pin::Pin;
use std::sync::Arc;

use rustls::ServerConfig;

use crate::tls::signer_channel::SignerUnavailable;

/// LIMIT: bytes of a handshake that are kept: what rustls itself would keep of a message. One that is longer does not
/// begin again.
const RECORDS_BYTES: usize = 64 << 10;

/// The state from which a handshake begins again.
pub(super) struct HandshakeRestart {
    pub(super) config: Arc<ServerConfig>,
    /// All that rustls has read.
    pub(super) records: Vec<u8>,
    /// How many bytes it has said to that. To ask for another ClientHello (RFC 8446 4.1.4) needs no signature.
    pub(super) said: usize,
    /// Ends when the signature is to be asked for again, if there was none.
    pub(super) wait: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl HandshakeRestart {
    /// Of a connection that has read nothing.
    pub(super) fn new(config: Arc<ServerConfig>) -> Box<Self> {
        Box::new(Self { config, records: Vec::new(), said: 0, wait: None })
    }

    /// Keeps what is about to be read; whether there is room.
    pub(super) fn keep(&mut self, records: &[u8]) -> bool {
        let fits = self.records.len() + records.len() <= RECORDS_BYTES;
        if fits {
            self.records.extend_from_slice(records);
        }
        fits
    }

    /// Of what was kept, `left` bytes are yet to be read; `said` bytes were said to the rest.
    pub(super) fn has_read(&mut self, left: usize, said: usize) {
        self.records.truncate(self.records.len().saturating_sub(left));
        self.said += said;
    }

    /// The kept state waits for a signature.
    pub(super) fn wait_for(&mut self, signer: SignerUnavailable) {
        self.wait = Some(Box::pin(signer.end()));
    }
}

/// The signer that a signature waits for, if a handshake has failed for want of one.
pub(super) fn unavailable_signer_of(error: &rustls::Error) -> Option<SignerUnavailable> {
    let rustls::Error::Other(other) = error else { return None };
    other.0.downcast_ref::<SignerUnavailable>().cloned()
}

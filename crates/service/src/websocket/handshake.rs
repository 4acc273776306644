//! Reads a client's request for a WebSocket, and decides whether to grant it.
//!
//! Runs in: a service's worker. Sees: headers that a client made up. Never: grants one to a page of another origin,
//! unless the service has named that.
//!
//! Source: RFC 6455, 4.2 (the server's part of the handshake) and 10.2 (Origin); RFC 6454, 6.2 (what an origin looks
//! like).

use http::header::{
    HeaderMap, ORIGIN, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::Response;
use crate::session::is_of_host;

/// A key has 16 bytes (RFC 6455 4.1), and these characters in base64.
const KEY_CHARS: usize = 24;

/// Why there is no WebSocket; converts into the [`Response`] to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWebSocket {
    /// The request asks for none, or was asked for its own before.
    #[error("the request asks for no WebSocket")]
    NotAsked,
    /// It asks for one, but not as RFC 6455 has it.
    #[error("the request asks for a WebSocket in a wrong way")]
    Malformed,
    /// A page of another site asks.
    #[error("a page of another site asks for the WebSocket")]
    OtherSite,
}

/// A request for a WebSocket.
#[derive(Debug)]
pub(super) struct HandshakeRequest {
    key: String,
    protocols: Vec<String>,
}

impl HandshakeRequest {
    pub(super) fn of(method: &Method, headers: &HeaderMap) -> Result<Self, NoWebSocket> {
        let is_asked =
            headers.get(UPGRADE).is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket"));
        if method != Method::GET || !is_asked {
            return Err(NoWebSocket::NotAsked);
        }
        if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(NoWebSocket::NotAsked);
        }
        let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).map(str::trim);
        let key = key.filter(|key| key.len() == KEY_CHARS).ok_or(NoWebSocket::Malformed)?;
        let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|line| line.to_str().ok());
        let protocols = lines.flat_map(|line| line.split(',')).map(|protocol| protocol.trim().to_owned());
        Ok(Self { key: key.to_owned(), protocols: protocols.collect() })
    }

    /// The value that shows that the key was read.
    pub(super) fn accept(&self) -> String {
        derive_accept_key(self.key.as_bytes())
    }

    pub(super) fn offers(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|offered| offered == protocol)
    }
}

/// Refuses a page that is neither of this host nor of one of these origins.
///
/// SECURITY: `Origin` alone counts, which every browser sends with a WebSocket (RFC 6455 4.1), and which no script can
/// set.
pub(super) fn check_origin(headers: &HeaderMap, others: &[&str]) -> Result<(), NoWebSocket> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let is_other = |other: &&str| origin.as_bytes().eq_ignore_ascii_case(other.as_bytes());
    if headers.get_all(ORIGIN).iter().count() == 1
        && (is_of_host(origin.as_bytes(), headers) || others.iter().any(is_other))
    {
        return Ok(());
    }
    Err(NoWebSocket::OtherSite)
}

impl From<NoWebSocket> for Response {
    fn from(why: NoWebSocket) -> Self {
        match why {
            NoWebSocket::NotAsked => Self::status_page(StatusCode::UPGRADE_REQUIRED)
                .with_header(UPGRADE, "websocket")
                .with_header(http::header::CONNECTION, "upgrade")
                .with_header(SEC_WEBSOCKET_VERSION, "13"),
            NoWebSocket::Malformed => Self::status_page(StatusCode::BAD_REQUEST),
            NoWebSocket::OtherSite => Self::status_page(StatusCode::FORBIDDEN),
        }
    }
}

//! The way to the doors of another machine: one for each service, under the name of the source.
//!
//! Sees: what claims to be the other machine. Never: says anything to one whose certificate is of no authority of the
//! operator's, or asks for the door of another service than the one that calls.
//!
//! Source: RFC 6455 (the protocol). The handshake and the frames are tungstenite's.

use std::io;

use tokio::time::timeout;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Error as Broken;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::error::{ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::http::{StatusCode, Uri};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use wire::MESSAGE_MAX;
use wire::data::{DOOR_PROTOCOL, DOOR_PROTOCOL_BEFORE, DOORS_AT};
use worker::server_stream::ServerStream;

use super::line::{CLOSE_TIMEOUT, Socket};
use crate::server::{Login, Way};

/// The bytes of one read; one buffer is kept for each connection.
const READ_BYTES: usize = 64 << 10;

/// See the file's head.
pub(crate) struct Door {
    /// To the machine.
    way: Way,
    /// The door's name for the source.
    source: String,
    /// Its host and port.
    authority: String,
    /// Those that have a door there.
    services: Vec<String>,
}

/// A connection to a door.
pub(super) struct OpenDoor {
    pub(super) socket: Socket,
    /// Whether the door says how long calls may take; one of before does not.
    pub(super) says_timeouts: bool,
}

impl Door {
    /// To `source` on the machine at `authority`, HOST:PORT.
    pub(crate) fn new(way: Way, (source, authority): (String, String), services: Vec<String>) -> Self {
        Self { way, source, authority, services }
    }

    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// The other machine's host and port.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether each service has a door there.
    ///
    /// # Errors
    /// Why one has none.
    pub(crate) async fn try_all(&self) -> Result<(), String> {
        for service in &self.services {
            leave(self.connect(service).await?.socket).await;
        }
        Ok(())
    }

    /// Has the other machine say whether it takes the certificate that was read last.
    ///
    /// # Errors
    /// The door's reason for a refusal.
    pub(crate) async fn try_login(&self) -> Result<(), String> {
        let Some(service) = self.services.first() else { return Ok(()) };
        self.way
            .try_newer(async |stream, login| {
                leave(self.shake_hands(service, stream, login).await?.socket).await;
                Ok(())
            })
            .await
    }

    /// A connection to the door of a service.
    pub(super) async fn connect(&self, service: &str) -> Result<OpenDoor, String> {
        self.way.log_in_by(async |stream, login| self.shake_hands(service, stream, login).await).await
    }

    async fn shake_hands(
        &self,
        service: &str,
        stream: ServerStream,
        login: &Login,
    ) -> Result<OpenDoor, String> {
        let tls = login.tls.clone().ok_or("there is no certificate for another machine")?;
        let secured = tls.connect(stream).await;
        let stream = secured.map_err(|error| format!("no TLS with {}: {error}", self.authority))?;
        let uri = format!("wss://{}{DOORS_AT}/{service}/{}", self.authority, self.source);
        let uri: Uri = uri.parse().map_err(|error| format!("{uri}: {error}"))?;
        let request = ClientRequestBuilder::new(uri)
            .with_sub_protocol(DOOR_PROTOCOL)
            .with_sub_protocol(DOOR_PROTOCOL_BEFORE);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, response)) => {
                let protocol = response.headers().get(SEC_WEBSOCKET_PROTOCOL);
                Ok(OpenDoor { socket, says_timeouts: protocol.is_some_and(|one| one == DOOR_PROTOCOL) })
            }
            Err(error) => Err(self.in_words(service, &error)),
        }
    }

    /// Why there is no connection, and what to do about it.
    fn in_words(&self, service: &str, error: &Broken) -> String {
        let Self { source, authority, .. } = self;
        match error {
            Broken::Http(response) => match response.status() {
                StatusCode::NOT_FOUND => format!(
                    "{authority} has no door to `{source}` for the service `{service}`: add a [[site.service]] with \
                     `name = \"{service}\"`, `remote = true` and `data = [\"{source}\"]` there"
                ),
                StatusCode::FORBIDDEN => format!(
                    "{authority} has seen no `certificate` of this machine that it knows: what has signed it is to be \
                     in `client_ca` there"
                ),
                status => format!("{authority} answers {status} at the door to `{source}` for `{service}`"),
            },
            Broken::Protocol(ProtocolError::SecWebSocketSubProtocolError(
                SubProtocolError::NoSubProtocol,
            )) => {
                format!(
                    "{authority} speaks another version of {DOOR_PROTOCOL}: install the same Bulkhead on both"
                )
            }
            Broken::Io(error) => match alert(error) {
                Some(alert) => format!(
                    "{authority} refuses the `certificate` of this machine ({alert}): what has signed it is to be in \
                     `client_ca` there"
                ),
                None => format!("{authority} has ended the connection: {error}"),
            },
            error => format!("{authority} does not speak as a door does: {error}"),
        }
    }
}

/// Ends a connection of which all was wanted that it is there.
async fn leave(mut socket: Socket) {
    let _ = timeout(CLOSE_TIMEOUT, socket.close(None)).await;
}

/// The other side's alert about the certificate that it was shown in the handshake: the alert comes after the
/// handshake.
fn alert(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(format!("{alert:?}")),
        _ => None,
    }
}

//! WebSocket: messages in both directions on the connection of a request.
//!
//! Runs in: a service's worker. Sees: what a client sends, which is whatever it likes. Never: holds a message that is
//! longer than its limit, keeps a client that is silent or reads nothing, or one of a worker that retires.
//!
//! Source: RFC 6455 (the protocol); RFC 8441 (over HTTP/2, which the site's worker makes the same of). The frames are
//! tungstenite's.

mod handshake;
mod socket;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

use crate::{Context, Error, Level, Request, Response, ResponseBody, Upgraded};
use handshake::HandshakeRequest;
pub use handshake::NoWebSocket;
pub use socket::{Message, WebSocket, WebSocketError};

/// LIMIT: bytes of a message, unless the service says otherwise.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// LIMIT: how long a client may be silent before it is asked for a sign of life, unless `idle_timeout` is shorter than
/// twice that.
const QUIET_MAX: Duration = Duration::from_secs(15);

/// A request for WebSocket, which [`Self::accept`] grants; from [`Request::websocket`].
pub struct WebSocketRequest {
    asked: HandshakeRequest,
    upgrade: Pin<Box<dyn Future<Output = Result<Upgraded, Error>>>>,
    protocol: Option<&'static str>,
    message_bytes_max: usize,
    quiet: Option<Duration>,
    ends_itself: bool,
}

impl Request {
    /// Grants the WebSocket that the request asks for.
    ///
    /// A browser says from whose page it comes: one of another origin than this host's is refused, as scripts of any
    /// site may open a WebSocket to any other, with the cookies of its user (cross-site WebSocket hijacking). A client
    /// that names no origin is no browser.
    ///
    /// # Errors
    /// It asks for none, or a page of another site does. [`NoWebSocket`] converts into the [`Response`] to be given.
    pub fn websocket(&mut self) -> Result<WebSocketRequest, NoWebSocket> {
        self.websocket_for(&[])
    }

    /// As [`Self::websocket`], also for pages of these origins, as in `https://app.example.org`.
    ///
    /// # Errors
    /// As there.
    pub fn websocket_for(&mut self, origins: &[&str]) -> Result<WebSocketRequest, NoWebSocket> {
        handshake::check_origin(self.headers(), origins)?;
        self.danger_websocket_for_all()
    }

    /// As [`Self::websocket`], for pages of every site. With cookies that name a user, any page that he visits may act
    /// for him.
    ///
    /// # Errors
    /// The request asks for no WebSocket.
    pub fn danger_websocket_for_all(&mut self) -> Result<WebSocketRequest, NoWebSocket> {
        let asked = HandshakeRequest::of(self.method(), self.headers())?;
        let upgrade = self.upgrade().ok_or(NoWebSocket::NotAsked)?;
        let upgrade = Box::pin(upgrade);
        Ok(WebSocketRequest {
            asked,
            upgrade,
            protocol: None,
            message_bytes_max: MESSAGE_BYTES_MAX,
            quiet: None,
            ends_itself: false,
        })
    }
}

impl WebSocketRequest {
    /// Speaks the first of these protocols that the client offers (`new WebSocket(url, ["chat.v2"])`); none if it
    /// offers none of them, which a browser then takes for a failure if it has offered any.
    #[must_use]
    pub fn protocols(mut self, ours: &[&'static str]) -> Self {
        self.protocol = ours.iter().copied().find(|protocol| self.asked.offers(protocol));
        self
    }

    /// The protocol that is spoken, if [`Self::protocols`] has found one.
    pub fn protocol(&self) -> Option<&'static str> {
        self.protocol
    }

    /// Takes messages of at most so many bytes; a longer one ends the WebSocket. 1 MiB if nothing is said.
    #[must_use]
    pub fn message_bytes_max(self, bytes: usize) -> Self {
        Self { message_bytes_max: bytes, ..self }
    }

    /// Asks the client for a sign of life after so long a silence, and ends the WebSocket if none comes within as long
    /// again. 15 s, or half of `idle_timeout` if that is shorter, if nothing is said.
    #[must_use]
    pub fn quiet(self, quiet: Duration) -> Self {
        Self { quiet: Some(quiet), ..self }
    }

    /// Lets `speak` go on when the worker retires: it watches [`Context::drained`] itself, finishes what it has begun,
    /// and ends within `drain_timeout`.
    #[must_use]
    pub fn ends_itself(self) -> Self {
        Self { ends_itself: true, ..self }
    }

    /// Grants it: the answer to give, after which `speak` has the WebSocket. It ends when `speak` does.
    ///
    /// When the worker retires, `speak` is dropped, unless [it ends itself](Self::ends_itself), where it waits, and the
    /// client is told that the server goes (1001), so that it may come back to the next worker. If `speak` fails,
    /// `error.log` has the error, and the client 1011; but a [`WebSocketError`] is the client's, who is told what was
    /// wrong.
    pub fn accept(
        self,
        cx: &Context,
        speak: impl AsyncFnOnce(&mut WebSocket) -> Result<(), Error> + 'static,
    ) -> Response {
        let accept = self.asked.accept();
        let quiet = self.quiet.unwrap_or_else(|| QUIET_MAX.min(cx.limits().idle_timeout / 2));
        let (context, bytes_max, upgrade) = (cx.clone(), self.message_bytes_max, self.upgrade);
        let ends_itself = self.ends_itself;
        cx.spawn(async move {
            // It fails when the client has gone before the answer.
            let Ok(connection) = upgrade.await else { return };
            let mut socket = WebSocket::on(connection, bytes_max, quiet).await;
            let outcome = tokio::select! {
                biased;
                outcome = speak(&mut socket) => Some(outcome),
                () = context.drained(), if !ends_itself => None,
            };
            if let Some(Err(error)) = &outcome
                && !error.is::<WebSocketError>()
            {
                context.event(Level::Error, format_args!("a WebSocket has ended: {error}"));
            }
            socket.finish(outcome).await;
        });
        let bodiless = http::Response::new(ResponseBody::from(Bytes::new()));
        let response = Response::from(bodiless)
            .with_status(StatusCode::SWITCHING_PROTOCOLS)
            .with_header(CONNECTION, "upgrade")
            .with_header(UPGRADE, "websocket")
            .with_header(SEC_WEBSOCKET_ACCEPT, &accept);
        match self.protocol {
            Some(protocol) => response.with_header(SEC_WEBSOCKET_PROTOCOL, protocol),
            None => response,
        }
    }
}

impl std::fmt::Debug for WebSocketRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocketRequest").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

//! An open WebSocket, as a service speaks on it.
//!
//! Runs in: a service's worker. Sees: what a client sends. Never: waits for a client without a limit.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as Broken, Message as Frame};

use crate::{Error, Upgraded};

/// LIMIT: how long the client may take to say that it has seen the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The bytes of one read; one buffer is kept for each WebSocket.
const READ_BYTES: usize = 4096;

/// A message, from a client or to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Bytes),
}

/// Why a client is heard no more.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    /// It has sent a message that is longer than its limit; it is told so (1009).
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
    /// It has sent what is no WebSocket (1002), or text that is no UTF-8 (1007).
    #[error("the client does not speak WebSocket: {0}")]
    Malformed(String),
    /// It gives no sign of life.
    #[error("the client is silent")]
    Silent,
    /// It has gone.
    #[error("the client has gone")]
    Gone,
}

/// A connection that a WebSocket may be on.
pub(super) trait Both: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Both for T {}

/// An open WebSocket, from [`crate::WebSocketRequest::accept`]. Pings of the client are answered while [`Self::next`]
/// waits.
pub struct WebSocket {
    stream: WebSocketStream<Box<dyn Both>>,
    bytes_max: usize,
    quiet: Duration,
    /// When the client has last been heard, and whether it has been asked for a sign of life since.
    heard: Instant,
    is_asked: bool,
    /// Whether the service has closed it.
    is_closed: bool,
    /// The fault in the client's messages, as the client is told.
    fault: Option<CloseCode>,
}

impl WebSocket {
    pub(super) async fn on(connection: Upgraded, bytes_max: usize, quiet: Duration) -> Self {
        Self::over(Box::new(connection), bytes_max, quiet).await
    }

    pub(super) async fn over(connection: Box<dyn Both>, bytes_max: usize, quiet: Duration) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(bytes_max))
            .max_frame_size(Some(bytes_max));
        let stream = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
        Self {
            stream,
            bytes_max,
            quiet,
            heard: Instant::now(),
            is_asked: false,
            is_closed: false,
            fault: None,
        }
    }

    /// The next message; `None` once the client has closed the WebSocket. A future that is dropped while it waits has
    /// lost no message, so it may stand in a `select!`.
    ///
    /// While nobody calls this, nothing is read, and the client is held back in time.
    ///
    /// # Errors
    /// The client does not do its part; `?` ends the WebSocket.
    pub async fn next(&mut self) -> Result<Option<Message>, WebSocketError> {
        while !self.is_closed {
            match timeout_at(self.heard + self.patience(), self.stream.next()).await {
                Ok(Some(frame)) => {
                    let frame = frame.map_err(|error| self.fault_of(error))?;
                    (self.heard, self.is_asked) = (Instant::now(), false);
                    match frame {
                        Frame::Text(text) => return Ok(Some(Message::Text(text.as_str().to_owned()))),
                        Frame::Binary(bytes) => return Ok(Some(Message::Binary(bytes))),
                        Frame::Ping(_) | Frame::Pong(_) | Frame::Close(_) | Frame::Frame(_) => {}
                    }
                }
                Ok(None) => return Ok(None),
                Err(_) if self.is_asked => return Err(WebSocketError::Silent),
                Err(_) => {
                    self.is_asked = true;
                    self.put(Frame::Ping(Bytes::new())).await?;
                }
            }
        }
        Ok(None)
    }

    /// How long the client may be silent before something is done about it.
    fn patience(&self) -> Duration {
        if self.is_asked { self.quiet * 2 } else { self.quiet }
    }

    /// Sends a message: text, or bytes. It waits until there is room for all of it on the way to the client, so who
    /// reads slowly is sent no more than he reads.
    ///
    /// # Errors
    /// The client has gone, or has taken nothing for `idle_timeout`.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), WebSocketError> {
        let frame = match message.into() {
            Message::Text(text) => Frame::text(text),
            Message::Binary(bytes) => Frame::binary(bytes),
        };
        self.put(frame).await
    }

    async fn put(&mut self, frame: Frame) -> Result<(), WebSocketError> {
        self.stream.send(frame).await.map_err(|error| self.fault_of(error))
    }

    /// Closes it with a code (1000, or 3000 to 4999) and a reason of at most 123 bytes; a WebSocket that simply ends is
    /// closed with
    /// 1000. The client is heard no more.
    pub async fn close(&mut self, code: u16, reason: &str) {
        let code = CloseCode::from(code);
        self.end(if code.is_allowed() { code } else { CloseCode::Normal }, reason).await;
    }

    /// Says how it has ended: as the service wanted it, or because the worker retires.
    pub(super) async fn finish(mut self, outcome: Option<Result<(), Error>>) {
        let code = match outcome {
            None => CloseCode::Away,
            Some(Ok(())) => CloseCode::Normal,
            Some(Err(error)) if error.is::<WebSocketError>() => self.fault.unwrap_or(CloseCode::Policy),
            Some(Err(_)) => CloseCode::Error,
        };
        self.end(code, "").await;
    }

    /// Sends the end, unless the service has, and waits for the client's.
    async fn end(&mut self, code: CloseCode, reason: &str) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let end = reason
            .char_indices()
            .map(|(at, c)| at + c.len_utf8())
            .take_while(|&end| end <= REASON_BYTES_MAX)
            .last();
        let reason = reason[..end.unwrap_or(0)].into();
        let both = async {
            // It fails if there was an end before.
            let _ = self.stream.close(Some(CloseFrame { code, reason })).await;
            while let Some(Ok(_)) = self.stream.next().await {}
            // Closing a connection with unread bytes may cost the client the bytes that were sent last.
            let raw = self.stream.get_mut();
            let _ = raw.shutdown().await;
            let mut rest = [0; READ_BYTES];
            while raw.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        };
        // A client that does not answer misses nothing.
        let _ = timeout(CLOSE_TIMEOUT, both).await;
    }

    fn fault_of(&mut self, error: Broken) -> WebSocketError {
        let (code, error) = match error {
            Broken::Capacity(CapacityError::MessageTooLong { .. }) => {
                (CloseCode::Size, WebSocketError::TooLong(self.bytes_max))
            }
            Broken::Utf8(reason) => (CloseCode::Invalid, WebSocketError::Malformed(reason)),
            Broken::Protocol(
                ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
            ) => {
                return WebSocketError::Gone;
            }
            Broken::Protocol(error) => (CloseCode::Protocol, WebSocketError::Malformed(error.to_string())),
            _ => return WebSocketError::Gone,
        };
        self.fault = Some(code);
        error
    }
}

/// The bytes that fit into the closing frame, beside the code (RFC 6455 5.5).
const REASON_BYTES_MAX: usize = 123;

impl std::fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocket")
            .field("bytes_max", &self.bytes_max)
            .field("quiet", &self.quiet)
            .finish_non_exhaustive()
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self::Binary(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Binary(bytes.into())
    }
}

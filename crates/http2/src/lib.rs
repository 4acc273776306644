//! The server's side of HTTP/2 (RFC 9113): frames, compression of fields, streams and flow control.
//!
//! Runs in: site workers, under the site's uid; pure, no input or output. Sees: every byte of a connection. Never:
//! holds more of one than its limits say, or has a buffer with nothing in it.
//!
//! A [`Connection`] is given the bytes that have come, and tells which bytes are to be sent. An answer that is at hand
//! goes out at once ([`Connection::answer`]); every other request gets a [`Stream`], for whoever answers it.

mod connection;
mod count;
mod frame;
mod head;
pub mod hpack;
mod state;
mod stream;

pub use connection::{Connection, ReceiveResult, StreamLimits};
pub use head::{Http2Head, Protocol};
pub use stream::{SharedConnection, Stream, StreamReset};

/// Bytes that a client sends before its first frame.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Why a stream, or the connection, ends (RFC 9113 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u32);

impl Reason {
    /// Nothing is wrong.
    pub const NO_ERROR: Self = Self(0);
    /// The other side does not keep to the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// Something failed here.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// The other side sent more than its window.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// A frame came for a stream that had ended.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame has a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// Nothing was done for the request.
    pub const REFUSED_STREAM: Self = Self(7);
    /// Nobody wants the rest.
    pub const CANCEL: Self = Self(8);
    /// A header block is none.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The other side does too much.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// The entry for fuzzing: whatever comes in whatever pieces, the same requests are found, and the limits hold.
pub fn fuzz(data: &[u8]) {
    connection::fuzz(data);
}

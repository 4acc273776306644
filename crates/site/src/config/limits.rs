//! The limits that the launcher sets for clients.
//!
//! Untrusted input: none. Must never: differ from what the operator wrote.

use std::time::Duration;

use conditioning::MinRate;

/// What a client may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request head; 431 above.
    pub head_bytes: usize,
    /// From the first byte of a head to its last; 408 above.
    pub head_timeout: Duration,
    /// Bytes of a request body; 413 above.
    pub body_bytes: u64,
    /// Between requests; the connection is then closed without a word.
    pub idle_timeout: Duration,
    /// Without any byte moving while the client is waited for; as if it were too slow.
    pub stall_timeout: Duration,
    /// How slowly a request body may come; 408 below.
    pub body_rate: MinRate,
    /// How slowly an answer may be taken; the connection is closed below.
    pub response_rate: MinRate,
    /// Connections; when there are nearly so many, idle ones are closed.
    pub connections: u32,
    /// Whether heads that are unusual but not dangerous are refused as well.
    pub strict: bool,
}

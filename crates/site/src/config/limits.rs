//! The limits that the launcher sets for clients.
//!
//! Untrusted input: none. Must never: differ from what the operator wrote.

use std::time::Duration;

use conditioning::MinRate;
use conditioning::checks::Setting;
use wire::WorkerLimits;

/// LIMIT: a connection on which nothing moves for so long while the client is waited for is closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// LIMIT: what a client may take longer than its rate allows, for each piece: a line that was cut for some seconds has
/// sent again what was lost, and a phone is through the tunnel.
const GRACE: Duration = Duration::from_secs(20);

/// Bytes a second that a client has to move where the launcher does not say: as `[conditioning]` without keys.
const MIN_RATE: u32 = 500;

/// The limits of a client.
#[derive(Clone, Debug)]
pub struct ClientLimits {
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
    /// Which requests are refused for how they look.
    pub checks: Setting,
    /// How long a request waits for a service to start; 503 after that.
    pub start_timeout: Duration,
    /// Without any connection, after which the launcher is told so; without a time, it is not.
    pub idle_stop: Option<Duration>,
}

impl ClientLimits {
    /// The launcher's limits, with the rates of `[conditioning]` without keys.
    pub fn new(limits: &WorkerLimits) -> Self {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        Self {
            head_bytes: limits.head_bytes as usize,
            head_timeout: ms(limits.head_timeout_ms),
            body_bytes: limits.body_bytes,
            idle_timeout: ms(limits.idle_timeout_ms),
            stall_timeout: STALL_TIMEOUT,
            body_rate: MinRate::new(MIN_RATE, GRACE),
            response_rate: MinRate::new(MIN_RATE, GRACE),
            connections: limits.connections,
            checks: Setting::Strict,
            start_timeout: ms(limits.start_timeout_ms),
            idle_stop: worker::idle::time(limits.idle_stop_ms),
        }
    }

    /// Has clients send bodies, and take responses, at so many bytes a second at least.
    pub fn set_min_rates(&mut self, body: u32, response: u32) {
        self.body_rate = MinRate::new(body, GRACE);
        self.response_rate = MinRate::new(response, GRACE);
    }
}

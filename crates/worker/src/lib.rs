//! The skeleton of every process that the launcher starts: channels, connections in and out, log, counters.
//!
//! Runs in: gate, site, service, logger, admin, each under its own uid, after its jail is complete. Sees:
//! messages of the launcher (trusted), and of other roles through `receiver` and `outlet` (not trusted). Never:
//! opens a file or a socket by name.
//!
//! Everything here belongs to one thread: one tokio current-thread runtime per process, state without locks.

pub mod channel;
pub mod counters;
pub mod dialer;
pub mod dispatcher;
pub mod files;
pub mod idle;
pub mod log;
pub mod pair;
pub mod receiver;
pub mod refused;
pub mod routes;
pub mod server_stream;
mod start;
mod stock;

use std::time::Duration;

/// LIMIT: how long a service or a function of a site's own may take to begin its response; a client has given up by
/// then. The site's worker answers 504 after that, and the SDK knows how much time is left.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub use channel::watch;
pub use start::{ProcessFault, ProcessStart, allow_dump, run};

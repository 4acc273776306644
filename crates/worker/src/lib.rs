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

pub use channel::watch;
pub use start::{Fault, Start, allow_dump, run};

//! The logger: turns batches of records and lines of standard error into log files.
//!
//! Runs in: the `logger` process, under its own uid, in a jail without a file system. Sees: whatever a
//! compromised role sends as a batch, and whatever any process prints. Never: opens a file (it gets its files as
//! descriptors from the launcher), lets an entry look like two, or lets one site write into another's log.
//!
//! [`format_batch`] is the whole path from hostile bytes to lines, for fuzzing.

mod calendar;
mod client;
mod error_log_limiter;
mod escape;
mod format;
mod lines;
mod output;
mod quota;
mod serve;
mod syslog;
mod terminal;

pub use calendar::Clock;
pub use client::LogClient;
pub use format::{Format, access_line, event_line, format_batch};
pub use lines::LineReader;
pub use output::LogFiles;
pub use serve::{ServeError, serve};
pub use syslog::Syslog;

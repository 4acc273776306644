//! The gate: accepts connections, looks at the head of the first request, and passes each on to its partition.
//!
//! Runs in: the `gate` process, under a uid of its own, with an empty root and no files. Sees: the first bytes of
//! every connection, which anybody may send. Never: takes bytes out of a connection that it passes on (but a head,
//! for filters); has keys, files or request bodies; lets one client's slowness cost another anything.
//!
//! Sources: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.2 (okd);
//! Park and Pai, "Connection Conditioning", NSDI 2006 (request packaging).

mod accept;
mod answer;
mod attend;
mod chain;
mod connection;
mod dispatch;
mod gate;
mod incomplete;
mod listener;
mod partition;
mod peek;
mod policies;
mod proxy_protocol;
mod refusal;
mod report;
mod route;
mod start;
mod tables;
mod tls;
mod workers;

pub use start::run;

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
mod chain;
mod connection;
mod gate;
mod incomplete;
mod partition;
mod policies;
mod proxy_protocol;
mod report;
mod start;
mod tls;

pub use start::run;

//! The broker: answers the calls by which one service asks for sockets and connections.
//!
//! Runs in: one `broker` process per service that has `network` grants, under that service's uid, with an empty root and
//! no network. Sees: what the service's threads pass to `socket` and `connect`, which is untrusted. Never: makes a socket
//! or connects one (its connector does, if the grants allow it), reads what a waiting call does not point at, or signals
//! a process.

mod serve;

pub use serve::serve;

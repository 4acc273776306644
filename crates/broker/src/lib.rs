//! The broker: answers the calls by which one service asks for sockets and connections.
//!
//! Runs in: one `broker` process per service that has `network` grants, under that service's uid, with an empty root
//! and no network. Sees: what the service's threads pass to `socket` and `connect`, which is untrusted. Never: makes a
//! socket or connects one (its connector does, if the grants allow it), reads what a waiting call does not point at, or
//! signals a process.
//!
//! The service has no network, so what it makes of a socket of its own leads nowhere; and of the sockets that it is
//! given, it can have none connected but by asking here.

pub mod address;
mod broker;
mod calls;
mod connector;
mod serve;

pub use broker::Broker;
pub use serve::serve;

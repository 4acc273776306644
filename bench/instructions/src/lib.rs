//! What users have done most often – a request on a kept-alive connection, a connection through a gate – in one thread,
//! for the work of that thread to be counted: its instructions, its allocations.
//!
//! The site and the gate are the real ones, over real sockets. The clients, the launcher's part, and all that is behind
//! them, have threads of their own.
//!
//! Runs in: benchmarks and tests.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]

pub mod behind;
pub mod client;
pub mod connections;
pub mod requests;
pub mod warm;

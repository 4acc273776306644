//! The publisher: reads the templates of one site, and publishes them with the site's public values to its services,
//! one version after the other.
//!
//! Runs in: one `publisher` process per site with templates, under a uid of its own, with nothing in its root. Sees:
//! the operator's templates, by the descriptor of their folder; of services, which may be compromised, whether they
//! have compiled a version. Never: writes a file but the memory in which it keeps versions, reaches the network, or
//! activates a version that a process of a service has not compiled.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.4 and 4.3 (pubd).
//!
//! A version is published in two phases: all processes stage it; when all have, it is activated in all. In between is
//! the one moment at which it is decided, in this process alone: the version is written into memory that outlives the
//! process.

pub mod kept;
mod member;
mod members;
mod publish;
mod report;
mod serve;

pub use serve::serve;

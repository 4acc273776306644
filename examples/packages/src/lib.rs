//! The demo: this machine's packages as a site of static pages and three services.
//!
//! Runs in: `make-site`, which makes the site, and the services, each in its own process under its own uid,
//! inside its jail. Sees: requests of clients. Never: opens a socket; connections come from Bulkhead.
//!
//! `examples/demo` puts it all together; [`catalogue`] is what the programs share.

pub mod catalogue;
pub mod dpkg;
pub mod page;
pub mod rank;
pub mod site;

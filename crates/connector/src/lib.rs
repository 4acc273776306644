//! The connector: makes one site's connections to its upstreams and FastCGI servers, and gives them to its worker; or
//! makes the sockets of one service that has `network` grants, and connects them.
//!
//! Runs in: one `connector` process per site that has such servers and per such service, under a uid of its own, with
//! an empty root and, only if something has an IP address, with the machine's network, of which Landlock leaves it the
//! ports (of TCP). Sees: numbers from its site's worker, or addresses and descriptors from its service's broker, which
//! may be compromised; and answers of DNS servers, only if a server of the site has a name. Never: reads or writes a
//! byte of a connection that it gives away, or connects to what the launcher has not named.
//!
//! A site's worker parses what clients send, and so it has no network and cannot make a socket. This process has the
//! network, and parses nothing: who takes the worker over reaches the servers that the operator named, and no other.

mod address;
mod attempt;
mod calls;
mod dialer;
mod grants;
mod member;
mod named;
mod refusals;
mod serve;
mod target;

pub use address::{Address, ConnectOutcome};
pub use calls::Calls;
pub use grants::Grants;
pub use named::{NamedServer, Resolver};
pub use serve::serve;
pub use target::ServerGroup;

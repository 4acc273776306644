//! The code that all backends share, which answer a request in the place of files: services, upstreams, FastCGI servers
//! and functions.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests of clients, and answers. Must never: treat
//! the same request or answer in one way for one of them and in another way for another.

pub(crate) mod backend;
pub mod backends;
pub(crate) mod direct;
pub mod fastcgi;
pub(crate) mod gather;
pub(crate) mod headers;
mod http;
pub(crate) mod http1;
pub(crate) mod limit;
mod pool;
pub(crate) mod relay;
pub(crate) mod response;
mod retry;
pub(crate) mod sendfile;
pub mod service;
pub(crate) mod spool;
pub(crate) mod stream;
pub(crate) mod timeout;
mod upstream;

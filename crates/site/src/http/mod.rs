//! HTTP, whatever its version: what requests and responses consist of, and what is said of them.
//!
//! Untrusted input: see the modules. Must never: depend on a codec, a router or a backend.

pub mod access_record;
pub mod body;
pub mod clock;
pub mod compress;
pub mod conn_info;
pub(crate) mod finish;
pub(crate) mod internal_redirect;
pub(crate) mod request;
pub mod response;
pub mod websocket;

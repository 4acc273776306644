//! Request heads: the one check that decides what a request is, for gates and site workers alike, and the readers of
//! single header fields.
//!
//! Runs in: gates and site workers, unprivileged; pure, no input or output. Sees: whatever clients send. Never:
//! accepts a head, or two spellings of a path, that two readers could understand differently.

pub mod accept_encoding;
pub mod chunks;
pub mod conditional;
pub mod date;
pub mod error;
pub mod fields;
pub mod head;
pub mod hello;
pub mod links;
pub mod mime;
pub mod path;
pub mod proxy;
pub mod range;
pub mod response_head;
pub mod script;
pub mod sendfile;
pub mod target;

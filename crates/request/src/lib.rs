//! Request heads: the one check that decides what a request is, for gates and site workers alike.
//!
//! Runs in: gates and site workers, unprivileged; pure, no input or output. Sees: whatever clients send. Never:
//! accepts a head, or two spellings of a path, that two readers could understand differently.

pub mod chunks;
pub mod fields;
pub mod head;
pub mod hello;
pub mod path;
pub mod proxy;
pub mod target;

//! Bodies of requests that are too long for memory, in a file until they are whole: a server behind the site hears of
//! none before.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: bodies of clients, which it does not look at, and
//! their addresses. Must never: keep more of them than `spool_bytes`, write where the disk is nearly full, or give one
//! client the bytes of another.
//!
//! The file is the launcher's: it has no name, the worker can make no other, and `RLIMIT_FSIZE` of its jail ends it at
//! `spool_bytes`. It is cut into blocks; a body has a list of those. When all are taken and another body needs one, a
//! body of the heaviest range of addresses is given up: the range that holds the most is the one to get 503. A body
//! that a server has heard of cannot be given up: of that, a range has a share.

mod blocks;
mod part;
mod ranges;
#[cfg(test)]
mod tests;

pub(crate) use blocks::{BLOCK_BYTES, Lack};
pub(crate) use part::{Spool, SpooledBody};

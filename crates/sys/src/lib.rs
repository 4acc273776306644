//! The system calls that neither `std` nor `rustix` offer in a safe form, and the few compositions of
//! them that every process of Bulkhead shares.
//!
//! Runs in: every process, with that process's privilege. Sees no untrusted bytes itself: it moves them.
//! Never: decides anything. Besides `jail`, this is the only crate that may contain unsafe code.

pub mod absence;
pub mod aimed;
#[cfg(feature = "count-allocations")]
pub mod allocations;
pub mod attempt;
pub mod control;
pub mod file_version;
pub mod foreign;
pub mod handed;
pub mod inherit;
pub mod memfd;
pub mod memory;
pub mod notify;
pub mod oom;
pub mod passed;
pub mod pause;
pub mod process;
pub mod reset;
pub mod seqpacket;
pub mod signals;
mod socket_option;
pub mod version;

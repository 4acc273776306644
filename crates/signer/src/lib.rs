//! The signer: holds the private keys of all sites, and signs with them what the handshake of TLS needs.
//!
//! Runs in: the `signer` process, under a uid of its own, with an empty root, no files and no network. Sees: files that
//! the operator wrote, which the launcher opened; and from each site's worker, which may be compromised, what it wants
//! to have signed. Never: lets a key out; signs for a site with another's key, or anything but a step of a handshake.
//!
//! As `signer check` the program looks through files for the check of a configuration, and ends.
//!
//! A channel is for the certificates of one site, which it names by number; those of other sites have no names there.

pub mod certificate;
pub mod check;
mod key;
mod serve;
pub mod step;

pub use serve::run;

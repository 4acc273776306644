//! Escape attempts and an exposure score, made from inside a jail.
//!
//! Runs in: the probe, a program that the launcher starts in the jail of any role or service on an
//! administrator's order; and in the example `breakout`. Sees: one argument from who starts it. Never: does lasting
//! harm, also where everything succeeds: outside of any jail, as root.
//!
//! Each attempt is an entry of a table ([`attempts::ALL`]) and is able to succeed; that is proved by running it
//! outside of any jail. The score is that of `systemd-analyze security`, filled by trying instead of by reading a
//! configuration.

pub mod attempt;
pub mod attempts;
mod errno;
pub mod filter;
pub mod hints;
mod look;
mod memory;
pub mod names;
pub mod run;
pub mod score;
pub mod sweep;

pub use hints::Hints;
pub use look::given_descriptors;
pub use run::{ProbeReport, attempts};

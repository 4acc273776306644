//! The policies that decide which client is served next, which one waits, and which one has to go.
//!
//! Runs in: gates, site workers, filters; pure: no input or output, and no clock (the caller says what time it is).
//! Sees: addresses of clients and request heads, which anybody may choose. Never: grows without a limit, loses what
//! waits, or lets what many clients do decide what one client gets.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2 and 4.2.1.

pub mod checks;
pub mod http2;

mod address;
mod bans;
mod delayed;
mod guesses;
mod hash;
mod network;
mod pace;
mod queue;
mod rate;
mod recent;
mod shares;
mod tree;

pub use address::{AddressRange, ClientOrigin};
pub use bans::Bans;
pub use delayed::DelayQueue;
pub use guesses::Guesses;
pub use network::{Exempt, IpNetwork, NetworkError};
pub use pace::{MinRate, Pace};
pub use queue::{Priority, Queue, QueuedItem};
pub use rate::{Buckets, Rate, RateDecision};
pub use shares::{ShareLimits, Shares};
pub use tree::{ItemKey, Tree};

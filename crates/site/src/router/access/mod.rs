//! Users, their passwords, and how many of them are verified at once.
//!
//! Untrusted input: `Authorization`. Must never: take longer for a user that there is than for one that there is not.

pub mod guesses;
pub mod users;

//! Who answers a request: rules, on what terms, and what they lead to.
//!
//! Untrusted input: requests. Must never: take an action before the access policy of every rule that covers the path is met.

pub mod access;
pub(crate) mod custom_error;
pub(crate) mod dispatch;
pub mod hook;
pub mod rules;
pub mod script;

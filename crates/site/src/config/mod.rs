//! The launcher's messages about a site.
//!
//! Untrusted input: none; the launcher has checked the configuration. Must never: differ from what the operator wrote.

pub mod limits;
pub mod settings;
pub mod setup;

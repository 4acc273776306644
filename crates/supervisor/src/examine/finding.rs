//! What is found, and how much is looked for.
//!
//! Runs in: the launcher, as root, and the commands `check` and `run`. Input: words of the modules around. Does no
//! input or output.

use config::{Finding, Severity};

/// How much is to be found out, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What keeps something from being served, for who is going to start it.
    Start,
    /// That, and what is perhaps not meant; perhaps for another user, who can read more.
    Check,
}

/// Something that keeps the configuration from running.
pub(super) fn error(message: impl Into<String>, help: impl Into<String>) -> Finding {
    Finding { severity: Severity::Error, message: message.into(), help: help.into() }
}

/// Something that runs, and is perhaps not meant.
pub(super) fn warning(message: impl Into<String>, help: impl Into<String>) -> Finding {
    Finding { severity: Severity::Warning, message: message.into(), help: help.into() }
}

//! What goes along with a message, before it is opened.
//!
//! Runs in: the launcher, as root. Sees: paths of the configuration. Never: opens them.

use std::path::PathBuf;

/// What is opened for a process, and comes along with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A directory, with nothing above it.
    View(PathBuf),
    /// A file that is read anew when it has changed.
    File(PathBuf),
    /// A new file without a name, in which bodies of requests wait.
    Spool,
}

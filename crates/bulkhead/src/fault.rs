//! Why a command failed, and with which exit code.
//!
//! Runs in: the `bulkhead` command. Sees no untrusted bytes. Never: hides which file or address is meant.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Why a command did not do what it was told to.
#[derive(Debug)]
pub enum Fault {
    /// The command line or the configuration is wrong: exit code 2.
    Usage(String),
    /// Some of it is done, and some is not: exit code 3.
    Partly(String),
    /// Something went wrong: exit code 1.
    Failed(String),
    /// The server does something else: exit code 1.
    Busy(String),
    /// No server runs that could be asked: exit code 1.
    Unreachable(String),
}

impl Fault {
    /// A failure of the system while doing `what`.
    pub fn io(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }

    /// The exit code.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Partly(_) => ExitCode::from(3),
            Self::Failed(_) | Self::Busy(_) | Self::Unreachable(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Partly(text)
            | Self::Failed(text)
            | Self::Busy(text)
            | Self::Unreachable(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

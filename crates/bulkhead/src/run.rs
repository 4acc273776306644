//! `bulkhead run`: finds the configuration, then becomes the launcher, which checks it.
//!
//! Runs in: the `bulkhead` command. Sees: where the operator's file is. Never: returns if all is well.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::fault::Fault;
use crate::locate;

/// Becomes `bulkheadd` with the configuration that was named, or the usual one.
pub fn run(named: Option<&Path>) -> Result<ExitCode, Fault> {
    let config = locate::config(named)?;
    let launcher = locate::launcher()?;
    // exec returns only if it failed.
    let error = Command::new(&launcher).arg(&config).exec();
    Err(Fault::Failed(format!("{}: {error}", launcher.display())))
}

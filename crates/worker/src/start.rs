//! The first lines of every process: take what was inherited, make the runtime, run until the end.
//!
//! Runs in: every process but the launcher, as its first act inside its jail. Sees no untrusted bytes. Never:
//! goes on without its channel to the launcher.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use sys::inherit::Inherited;

/// What a process begins with.
#[derive(Debug)]
pub struct Start {
    /// The channel from and to the launcher.
    pub control: OwnedFd,
    /// The channel to the logger; the logger itself has none.
    pub log: Option<OwnedFd>,
}

/// Runs `main` on a current-thread runtime with what this process inherited.
///
/// What `main` returns as an error goes to standard error, that is, to the error log, with exit status 1.
pub fn run<E: std::fmt::Display>(main: impl AsyncFnOnce(Start) -> Result<(), E>) -> ExitCode {
    let inherited = match Inherited::take() {
        Ok(inherited) => inherited,
        Err(error) => {
            eprintln!("error: {error}; this program is started by `bulkhead run CONFIG`");
            return ExitCode::from(2);
        }
    };
    let start = Start { control: inherited.control, log: inherited.log };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the event loop could not be made: {error}");
            return ExitCode::FAILURE;
        }
    };
    let local = tokio::task::LocalSet::new();
    match local.block_on(&runtime, main(start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

//! `bulkheadd guard`: somebody else's server behind a gate of ours.
//!
//! Runs as: whoever types `bulkhead guard`; as root the gate and the filters are in jails like the launcher's. Sees:
//! that person's words, exits, and what the guarded server says of its own sockets. Never: a byte from the network,
//! HTTP, a second thread; never runs the server with more rights than its user has.
//!
//! The server is started as it is. Where it would listen, the gate accepts in its place; where it would accept, it
//! takes, from a channel that all of its processes share, connections on which a whole request waits.
//! Either a preloaded library puts the channel there, or, for programs that do not use the C library for it, the guard
//! itself does (`notify`).
//!
//! Source: seed 001, "Implementation"; row D2.

mod command;
mod desk;
mod examine;
mod filters;
mod fronts;
mod gate;
mod ground;
mod identity;
mod notify;
mod options;
mod process;
mod report;
mod servers;
mod voice;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::error::Error;
use options::Options;

/// How messages of the guard begin.
pub(crate) const NAME: &str = "bulkhead guard";

/// Guards until the command ends, or the program that has started the guard.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{NAME}: {problem}");
            return ExitCode::from(2);
        }
    };
    match guard(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn guard(options: Options) -> Result<ExitCode, Error> {
    watch::Guard::start(options)?.run()
}

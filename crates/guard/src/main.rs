//! `bulkhead-guard`, the guard: somebody else's server behind a gate of ours.
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
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, "Implementation".

mod command;
mod filters;
mod gate;
mod gate_health;
mod listeners;
mod notify;
mod options;
mod probe;
mod process;
mod program_kind;
mod reactor;
mod registry;
mod report;
mod servers;
mod spawn_context;
mod stderr_relay;
mod uid_leases;
mod watch;

use std::process::ExitCode;

use options::Options;
use supervisor::error::Error;
use supervisor::spawn::reaper;

/// How told of the guard begin.
pub(crate) const NAME: &str = "bulkhead guard";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "reap").is_some() {
        return reaper::main();
    }
    if arguments.next_if(|first| first == "close").is_some() {
        return supervisor::foreign::main();
    }
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

fn guard(mut options: Options) -> Result<ExitCode, Error> {
    let probe = options.probe.take();
    let guard = watch::Guard::start(options)?;
    match probe {
        Some((probed, words)) => probe::run(&guard.context, &guard.reactor.gate.spec, probed, &words),
        None => guard.run(),
    }
}

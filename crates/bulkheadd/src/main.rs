//! `bulkheadd`, the launcher: the only process of Bulkhead that runs as root.
//!
//! Runs as: root (or the user who starts it, with the layers that this user can apply). Sees: the configuration
//! file, exits of its children, and small messages of enumerations and integers from them. Never: a byte from
//! the network, a string from a child, TLS, HTTP, JSON, a database, a second thread.
//!
//! Source: seed 000, 4.1 (okld).

mod backends;
mod bans;
mod brokers;
mod certificates;
mod cgroups;
mod chain;
mod cores;
mod door;
mod error;
mod gathering;
mod group_record;
mod guard;
mod hearing;
mod history;
mod identities;
mod introduce;
mod jails;
mod journal;
mod keep_core;
mod keepers;
mod launch;
mod launch_tls;
mod launcher;
mod listeners;
mod living;
mod logs;
mod orders;
mod outbox;
mod places;
mod probing;
mod process;
mod program;
mod reaper;
mod reread;
mod roster;
mod rotation;
mod runtime;
mod secret;
mod setup;
mod spill;
mod stapling;
mod statics;
mod stopping;
mod supervise;
mod survey;
mod survivors;
mod tickets;
mod uid_range;
mod unread;

use std::path::Path;
use std::process::ExitCode;

/// What the user is told who starts it with the wrong words.
const USAGE: &str = "usage: bulkheadd CONFIG\n\nThe launcher of Bulkhead. It is started by `bulkhead run CONFIG`, \
                     which also explains what is wrong with a configuration.";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "guard").is_some() {
        return guard::main(arguments);
    }
    if arguments.next_if(|first| first == "reap").is_some() {
        return reaper::main();
    }
    if arguments.next_if(|first| first == "keep-core").is_some() {
        return keep_core::main(arguments);
    }
    let (Some(path), None) = (arguments.next(), arguments.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if path == "--help" {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let config = match config::Config::load(Path::new(&path)) {
        Ok(config) => config,
        Err(diagnostics) => {
            eprintln!("{diagnostics}");
            return ExitCode::from(2);
        }
    };
    match launcher::Launcher::start(config).and_then(launcher::Launcher::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bulkhead: {error}");
            ExitCode::FAILURE
        }
    }
}

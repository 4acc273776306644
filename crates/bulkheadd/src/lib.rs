//! `bulkheadd`, the launcher: the only process of Bulkhead that runs as root.
//!
//! Runs as: root (or the user who starts it, with the layers that this user can apply). Sees: the configuration
//! file, exits of its children, and small messages of enumerations and integers from them. Never: a byte from
//! the network, a string from a child, TLS, HTTP, JSON, a database, a second thread.
//!
//! From the bottom: the crate `supervisor` starts the processes in their jails, owns them, and says what each is sent
//! before it serves; `components` are the launcher's other concerns, one a file, and `transactions` the changes under way; `launcher` has the event loop, and is alone
//! in knowing all of them. Each uses only what is below. The guard, a program of its own, is built on `supervisor` as well.
//!
//! Design: `okld` in Krohn, *Building Secure High-Performance Web Services with OKWS*, USENIX ATC 2004, section 4.1.

mod components;
mod given;
mod launcher;
mod secret;
mod transactions;

use std::process::ExitCode;

use components::registry::Started;
use given::Given;
use supervisor::examine::{Depth, Examiner};

/// What the user is told who starts it with the wrong words.
const USAGE: &str = "usage: bulkheadd CONFIG\n\nThe launcher of Bulkhead. It is started by `bulkhead run CONFIG`, \
                     which also explains what is wrong with a configuration.";

/// The whole program.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "reap").is_some() {
        return supervisor::spawn::reaper::main();
    }
    if arguments.next_if(|first| first == "keep-core").is_some() {
        return supervisor::spawn::core_copy::main(arguments);
    }
    if arguments.peek().is_some_and(|first| first == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(started) = Started::parse(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // Before anything is opened: the first free number could be that of a passed socket.
    let given = match Given::take() {
        Ok(given) => given,
        Err(error) => return fail(&error),
    };
    let mut read_files = config::Cache::default();
    let config = config::Config::load_again(&started.config, &Examiner::new(Depth::Start), &mut read_files);
    let config = match config {
        Ok(config) => config,
        Err(diagnostics) => {
            eprintln!("{diagnostics}");
            return ExitCode::from(2);
        }
    };
    match launcher::Launcher::new(config, read_files, started, given).and_then(launcher::Launcher::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &supervisor::error::Error) -> ExitCode {
    eprintln!("bulkhead: {error}");
    ExitCode::FAILURE
}

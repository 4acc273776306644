//! The data proxy's program.
//!
//! Runs in: a `dataproxy` process, under a uid of its own. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(word) if word == "check" => dataproxy::check::main(false),
        Some(word) if word == "describe" => dataproxy::check::main(true),
        _ => worker::run(dataproxy::serve),
    }
}

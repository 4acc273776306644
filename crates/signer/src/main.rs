//! The signer's program.
//!
//! Runs in: the `signer` process, under a uid of its own, with an empty root. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(word) if word == "check" => signer::check::main(),
        _ => worker::run(signer::run),
    }
}

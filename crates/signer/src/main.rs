//! The signer's program.
//!
//! Runs in: the `signer` process, under a uid of its own, with an empty root. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(signer::run)
}

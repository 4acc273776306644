//! The data proxy's program.
//!
//! Runs in: a `dataproxy` process, under a uid of its own. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(dataproxy::serve)
}

//! The logger's program.
//!
//! Runs in: the `logger` process, under its own uid. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(logger::serve)
}

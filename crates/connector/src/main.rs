//! The connector's program.
//!
//! Runs in: the `connector` process, under its own uid. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(connector::serve)
}

//! The broker's program.
//!
//! Runs in: the `broker` process, under its service's uid. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(broker::serve)
}

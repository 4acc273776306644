//! The stapler's program.
//!
//! Runs in: the `stapler` process, under its own uid. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(stapler::serve)
}

//! The gate's program.
//!
//! Runs in: the `gate` process, one per core, under a uid of its own, with an empty root. Sees, never: see the
//! library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(gate::run)
}

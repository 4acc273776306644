//! The publisher's program.
//!
//! Runs in: a `publisher` process, under a uid of its own. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(publisher::serve)
}

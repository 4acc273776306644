//! The admin role's program.
//!
//! Runs in: the `admin` process, under its own uid. Sees, never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(admin::serve)
}

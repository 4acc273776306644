//! The site worker's program.
//!
//! Runs in: the `site` process, under the site's uid. Untrusted input, must never: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::run(site::worker::run)
}

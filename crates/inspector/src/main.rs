//! The inspector's program: reads a program from descriptor 0, and prints one line about it.
//!
//! Runs in: the `inspector` process. Sees, never: see the library.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use object::read::ReadCache;

fn main() -> ExitCode {
    let Ok(program) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let content = ReadCache::new(File::from(program));
    let line = inspector::answer(&inspector::inspect(&content));
    match std::io::stdout().write_all(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

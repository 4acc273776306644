//! The inspector's program: reads a program from descriptor 0, and prints one line about it. `inspector versions FIRST
//! COUNT` reads COUNT programs from the descriptors from FIRST on, and prints a line about each.
//!
//! Runs in: the `inspector` process. Sees, never: see the library.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::str::FromStr;

use object::read::ReadCache;

fn main() -> ExitCode {
    let answer = match std::env::args_os().nth(1) {
        Some(word) if word == "versions" => versions(),
        _ => start(),
    };
    match answer.and_then(|lines| io::stdout().write_all(&lines)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// How the program is to be started.
fn start() -> io::Result<Vec<u8>> {
    let content = ReadCache::new(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    let loose = inspector::loose(&content).unwrap_or_default();
    Ok(inspector::answer(&inspector::inspect(&content), loose))
}

/// Of which version each program says that it is.
fn versions() -> io::Result<Vec<u8>> {
    let files = sys::inherit::files(number(2)?, number(3)?)?;
    let line = |file| inspector::version_answer(&inspector::version(&ReadCache::new(File::from(file))));
    Ok(files.into_iter().flat_map(line).collect())
}

fn number<T: FromStr>(at: usize) -> io::Result<T> {
    let word = std::env::args_os().nth(at);
    let number = word.and_then(|word| word.to_str()?.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

//! A launcher that takes the place of another: as a rehearsal, in earnest, and back.
//!
//! Runs in: the launcher, as root. Sees: the record of the launcher before. Never: serves before all of the record was
//! understood; ends while the launcher before can be put back.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use crate::components::registry::Started;
use crate::entry::{Entry, VERSION};
use crate::given::Given;
use crate::launcher::Launcher;
use crate::launcher::resume::{Depth, Resumed};

/// The whole of a launcher that takes the place of another.
pub(crate) fn main(entry: &Entry, started: Started, given: Given) -> ExitCode {
    match entry {
        Entry::Rehearse { record } => rehearse(*record, started, given),
        Entry::TakeOver { record, program } => match resume(*record, started, given) {
            Ok(resumed) => ended(resumed.replace_all().serve()),
            Err(reason) => put_back(*record, *program, &reason),
        },
        Entry::TakeBack { record, reason } => match resume(*record, started, given) {
            Ok(resumed) => ended(resumed.say_failed(&reason.to_string_lossy()).serve()),
            Err(reason) => failed(&reason),
        },
    }
}

/// The end of a launcher that has not even got what it was given. One that was to take over is not the last.
pub(crate) fn cannot_begin(entry: &Entry, reason: &str) -> ExitCode {
    match entry {
        Entry::TakeOver { record, program } => put_back(*record, *program, reason),
        Entry::Rehearse { .. } | Entry::TakeBack { .. } => failed(reason),
    }
}

fn rehearse(record: RawFd, started: Started, given: Given) -> ExitCode {
    let resumed = Launcher::resume(record, started, given, Depth::Whole);
    match resumed {
        Ok(_) => {
            println!("{VERSION}");
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error.to_string()),
    }
}

/// The launcher before, as this one goes on with its work; or why it cannot.
fn resume(record: RawFd, started: Started, given: Given) -> Result<Resumed, String> {
    // Nothing that it has begun has any effect outside of this process, so that it can be left half done.
    let resumed = catch_unwind(AssertUnwindSafe(|| Launcher::resume(record, started, given, Depth::Texts)));
    let resumed = resumed.map_err(|_| "it panicked when it read the record".to_owned())?;
    resumed.map_err(|error| error.to_string())
}

/// Has the launcher before go on, as if nothing had been.
fn put_back(record: RawFd, program: RawFd, reason: &str) -> ExitCode {
    let reason = reason.replace('\0', " ");
    let file = match sys::passed::copy(program) {
        Ok(file) => file,
        Err(error) => return failed(&format!("{reason}; the launcher before cannot be put back: {error}")),
    };
    let entry = Entry::TakeBack { record, reason: OsString::from(&reason) };
    let error = sys::passed::become_program(&entry.program(file), &[]);
    failed(&format!("{reason}; the launcher before cannot be put back: {error}"))
}

/// What `main` returns for the end of a launcher.
pub(crate) fn ended(result: Result<(), supervisor::error::Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

/// Says why this launcher ends, or does not begin.
pub(crate) fn failed(reason: &str) -> ExitCode {
    eprintln!("bulkhead: {reason}");
    ExitCode::FAILURE
}

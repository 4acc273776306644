//! The meaning of SQLite's failures for the service that called.

use rusqlite::{Error, ErrorCode};
use wire::data::CallFault;

use crate::job::Job;

/// Whether a new connection may be better: the file is gone, damaged, or cannot be read.
pub(super) fn is_broken(error: &Error) -> bool {
    use ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, SystemIoFailure};
    let code = error.sqlite_error_code();
    code.is_some_and(|code| matches!(code, SystemIoFailure | CannotOpen | DatabaseCorrupt | NotADatabase))
}

/// Whether SQLite has no memory left, which all connections have together.
pub(super) fn lacks_memory(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OutOfMemory)
}

/// Tells the service why there is no answer, and the operator what the database has said.
pub(super) fn answer(job: &Job, error: Error) {
    let Some(code) = error.sqlite_error_code() else {
        return job.fail(CallFault::Database, error.to_string());
    };
    match code {
        ErrorCode::ConstraintViolation => job.fail(CallFault::Constraint, message(&error)),
        ErrorCode::OperationInterrupted => job.fail(CallFault::Late, "it took too long"),
        ErrorCode::TooBig => job.fail(CallFault::TooLarge, message(&error)),
        ErrorCode::OutOfMemory => {
            let reason = "it takes more memory than half of the data source's `memory_max`";
            eprintln!("error: statement `{}`: {reason}", job.name());
            job.fail(CallFault::TooLarge, reason);
        }
        _ => {
            eprintln!("error: {error}");
            job.fail(CallFault::Database, message(&error));
        }
    }
}

fn message(error: &Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(message)) => message.clone(),
        error => error.to_string(),
    }
}

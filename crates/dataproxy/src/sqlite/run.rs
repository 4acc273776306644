//! One call on one connection.
//!
//! INVARIANT: what a call has changed is on disk before its answer says so; a call that fails has changed nothing.

use std::time::{Duration, Instant};

use rusqlite::types::ValueRef as Column;
use rusqlite::{Connection, Error, Statement, ToSql, types::ToSqlOutput};
use wire::data::{Value, ValueRef};

use crate::answer::{AnswerWriter, ErrorSent};
use crate::catalog::CatalogEntry;
use crate::job::{CallStep, Job};
use crate::sqlite::fault;
use crate::sqlite::watch::Watch;

/// LIMIT: how long a call may have worked that lacks memory and is tried again. One that has worked for longer has
/// taken it.
const SOON: Duration = Duration::from_millis(50);
/// How soon it is tried again.
pub(super) const MEMORY_AGAIN: Duration = Duration::from_millis(5);

/// A value that is bound, never spliced.
struct BoundValue<'a>(&'a Value);

impl ToSql for BoundValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => Column::Null,
            Value::Int(value) => Column::Integer(*value),
            Value::Real(value) => Column::Real(*value),
            Value::Text(value) => Column::Text(value.as_bytes()),
            Value::Blob(value) => Column::Blob(value),
        }))
    }
}

/// Why there is no answer, if not for the database.
enum RunError {
    Database(Error),
    /// Said to the service already.
    Said,
}

impl From<Error> for RunError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<ErrorSent> for RunError {
    fn from(_: ErrorSent) -> Self {
        Self::Said
    }
}

/// Carries a call out and answers it.
///
/// # Errors
/// The database has failed; the service has not been told.
pub(super) fn run(
    (connection, watch): (&Connection, &Watch),
    prepared: &mut [Option<Statement<'_>>],
    job: &Job,
) -> Result<(), Error> {
    if !job.begins() {
        return Ok(());
    }
    loop {
        let began = Instant::now();
        match once((connection, watch), prepared, job) {
            // Others have the memory, if it fails so soon.
            Err(error) if fault::lacks_memory(&error) && began.elapsed() < SOON && job.can_begin_again() => {
                std::thread::sleep(MEMORY_AGAIN);
            }
            outcome => return outcome,
        }
    }
}

fn once(
    (connection, watch): (&Connection, &Watch),
    prepared: &mut [Option<Statement<'_>>],
    job: &Job,
) -> Result<(), Error> {
    watch.begin(job);
    let outcome = match job.call {
        CatalogEntry::Statement(number) if job.holds_by_itself(number) => all_steps(prepared, job),
        _ => in_transaction(connection, watch, prepared, job),
    };
    watch.end();
    match outcome {
        Ok(answer) => {
            answer.end();
            Ok(())
        }
        Err(RunError::Said) => Ok(()),
        Err(RunError::Database(error)) => Err(error),
    }
}

fn in_transaction<'j>(
    connection: &Connection,
    watch: &Watch,
    prepared: &mut [Option<Statement<'_>>],
    job: &'j Job,
) -> Result<AnswerWriter<'j>, RunError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let outcome = all_steps(prepared, job).and_then(|answer| {
        connection.execute_batch("COMMIT")?;
        Ok(answer)
    });
    if outcome.is_err() && !connection.is_autocommit() {
        // Without a look at the clock, which would interrupt this as well.
        watch.end();
        connection.execute_batch("ROLLBACK")?;
    }
    outcome
}

fn all_steps<'j>(prepared: &mut [Option<Statement<'_>>], job: &'j Job) -> Result<AnswerWriter<'j>, RunError> {
    let mut answer = AnswerWriter::new(job);
    for step in job.steps() {
        let statement = prepared[step.number].as_mut().ok_or(Error::InvalidQuery)?;
        let outcome = self::step(statement, &step, &mut answer);
        // Each statement of each connection would keep the values of its last call.
        statement.clear_bindings();
        outcome?;
    }
    Ok(answer)
}

/// Carries one statement out, to its end: what it changes holds only then.
fn step(
    statement: &mut Statement<'_>,
    step: &CallStep<'_>,
    answer: &mut AnswerWriter<'_>,
) -> Result<(), RunError> {
    let parameters = rusqlite::params_from_iter(step.values.iter().map(BoundValue));
    if !step.about.kind.has_rows() {
        answer.changed(statement.execute(parameters)? as u64);
        return Ok(());
    }
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut columns = None;
    let mut rows = statement.query(parameters)?;
    while let Some(row) = rows.next()? {
        // SQLite prepares a statement anew when a table has changed, as it begins to carry it out.
        let columns = *columns.get_or_insert_with(|| {
            let names: Vec<&str> = row.as_ref().column_names().collect();
            answer.begin(step.number, &names);
            names.len()
        });
        if !answer.begin_row()? {
            if answer.only_reads() {
                break;
            }
            continue;
        }
        for column in 0..columns {
            value(row.get_ref(column)?)?.put(answer.bytes());
        }
        answer.end_row()?;
        answer.wait_for_room()?;
    }
    if columns.is_none() {
        answer.begin(step.number, &names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    answer.end_rows();
    Ok(())
}

fn value(column: Column<'_>) -> Result<ValueRef<'_>, Error> {
    Ok(match column {
        Column::Null => ValueRef::Null,
        Column::Integer(value) => ValueRef::Int(value),
        Column::Real(value) => ValueRef::Real(value),
        Column::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => ValueRef::Text(text),
            // The database does not see to it; nothing is lost so.
            Err(_) => ValueRef::Blob(bytes),
        },
        Column::Blob(bytes) => ValueRef::Blob(bytes),
    })
}

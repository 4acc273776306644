//! One call on one connection.
//!
//! INVARIANT: what a call has changed is on disk before its answer says so; a call that fails has changed nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rusqlite::types::ValueRef as Column;
use rusqlite::{Connection, Error, Statement, ToSql, types::ToSqlOutput};
use statements::Kind;
use wire::data::{CallFault, PART_MAX, ResultWriter, Value, ValueRef};

use crate::catalog::Call;
use crate::queue::{Job, Reply};

/// What the connection looks at while it works: by when a call must be done, and whether anybody still wants that.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Option<Limit>>>);

/// By when, and whether nobody wants the answer any more.
type Limit = (Instant, Arc<AtomicBool>);

impl Watch {
    /// Whether the call is to be interrupted.
    pub(super) fn is_over(&self) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.as_ref().is_some_and(|(deadline, cancelled)| {
            cancelled.load(Ordering::Relaxed) || Instant::now() >= *deadline
        })
    }

    fn set(&self, job: Option<&Job>) {
        let state = job.map(|job| (job.deadline, job.cancelled.clone()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// A value that is bound, never spliced.
struct Bound<'a>(&'a Value);

impl ToSql for Bound<'_> {
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

/// An answer that is being written.
struct Answer<'j> {
    job: &'j Job,
    bytes: Vec<u8>,
    /// All that was sent before.
    sent: usize,
}

/// Why there is no answer, if not for the database.
enum Stopped {
    Database(Error),
    /// Said to the service already.
    Said,
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Database(error)
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
    if !job.is_wanted() {
        job.fail(CallFault::Late, "it was cancelled before its turn");
        return Ok(());
    }
    if job.budget.is_spent() {
        job.fail(CallFault::Busy, "the service does not read its answers");
        return Ok(());
    }
    if Instant::now() >= job.deadline {
        job.fail(CallFault::Late, "it has waited too long for its turn");
        return Ok(());
    }
    watch.set(Some(job));
    let outcome = match job.call {
        Call::Statement(_) => all_steps(prepared, job),
        Call::Transaction(_) => in_transaction(connection, watch, prepared, job),
    };
    watch.set(None);
    match outcome {
        Ok(answer) => {
            answer.end();
            Ok(())
        }
        Err(Stopped::Said) => Ok(()),
        Err(Stopped::Database(error)) => Err(error),
    }
}

fn in_transaction<'j>(
    connection: &Connection,
    watch: &Watch,
    prepared: &mut [Option<Statement<'_>>],
    job: &'j Job,
) -> Result<Answer<'j>, Stopped> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let outcome = all_steps(prepared, job).and_then(|answer| {
        connection.execute_batch("COMMIT")?;
        Ok(answer)
    });
    if outcome.is_err() && !connection.is_autocommit() {
        // Without a look at the clock, which would interrupt this as well.
        watch.set(None);
        connection.execute_batch("ROLLBACK")?;
    }
    outcome
}

fn all_steps<'j>(prepared: &mut [Option<Statement<'_>>], job: &'j Job) -> Result<Answer<'j>, Stopped> {
    let mut answer = Answer { job, bytes: Vec::new(), sent: 0 };
    let mut values = &job.values[..];
    for &step in job.catalog.steps(&job.call) {
        let (own, rest) = values.split_at(job.catalog.file.statements[step].parameters.len());
        values = rest;
        let statement = prepared[step].as_mut().ok_or(Error::InvalidQuery)?;
        self::step(statement, step, own, &mut answer)?;
    }
    Ok(answer)
}

/// Carries one statement out, to its end: what it changes holds only then.
fn step(
    statement: &mut Statement<'_>,
    number: usize,
    values: &[Value],
    answer: &mut Answer<'_>,
) -> Result<(), Stopped> {
    let about = &answer.job.catalog.file.statements[number];
    let (kind, max_rows, max_bytes) = (about.kind, about.max_rows, about.max_bytes as usize);
    let parameters = rusqlite::params_from_iter(values.iter().map(Bound));
    if !kind.has_rows() {
        let changed = statement.execute(parameters)?;
        ResultWriter::columns(&[], &mut answer.bytes);
        ResultWriter::end(changed as u64, &mut answer.bytes);
        return Ok(());
    }
    let columns = statement.column_count();
    let names: Vec<&str> =
        (0..columns).map(|column| statement.column_name(column)).collect::<Result<_, _>>()?;
    ResultWriter::columns(&names, &mut answer.bytes);
    let only_reads = answer.job.catalog.reads[number];
    let (mut rows, mut count, before) = (statement.query(parameters)?, 0, answer.length());
    while let Some(row) = rows.next()? {
        if kind == Kind::One && count == 1 {
            if only_reads {
                break;
            }
            continue;
        }
        count += 1;
        if count > max_rows {
            return answer.stop(CallFault::TooLarge, format!("it has more than {max_rows} rows"));
        }
        ResultWriter::row(&mut answer.bytes);
        for column in 0..columns {
            value(row.get_ref(column)?)?.put(&mut answer.bytes);
        }
        if answer.length() - before > max_bytes {
            return answer.stop(CallFault::TooLarge, format!("it has more than {max_bytes} bytes"));
        }
        // Parts of what may not hold in the end are sent with the end.
        if only_reads && matches!(answer.job.call, Call::Statement(_)) {
            answer.send_parts();
            if answer.job.budget.is_spent() {
                return answer.stop(CallFault::Busy, "the service does not read its answers".into());
            }
        }
    }
    ResultWriter::end(0, &mut answer.bytes);
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

impl Answer<'_> {
    /// All bytes, those that were sent included.
    fn length(&self) -> usize {
        self.sent + self.bytes.len()
    }

    /// Sends what fills messages.
    fn send_parts(&mut self) {
        while self.bytes.len() > PART_MAX {
            let rest = self.bytes.split_off(PART_MAX);
            let part = std::mem::replace(&mut self.bytes, rest);
            self.sent += part.len();
            self.job.reply(Reply::Part(self.job.id, part));
        }
    }

    /// Sends the end. What has changed holds now: nothing may fail here.
    fn end(mut self) {
        self.send_parts();
        self.job.reply(Reply::Done(self.job.id, self.bytes));
    }

    fn stop<T>(&self, fault: CallFault, reason: String) -> Result<T, Stopped> {
        self.job.fail(fault, reason);
        Err(Stopped::Said)
    }
}

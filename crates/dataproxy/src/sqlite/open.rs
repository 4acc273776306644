//! Connections to the database, and what it says of statements.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, OpenFlags};
use statements::Statement;

use super::search::TextTables;
use super::watch::Watch;
use super::{functions, limits};
use crate::queue::Lane;

/// LIMIT: how long a connection waits for one of another process, which has taken this one's place or is to. It is less
/// than the `timeout` of a statement that has none of its own, so that whoever asks hears that the database is locked,
/// and not just that the call took too long.
const BUSY: Duration = Duration::from_secs(4);

/// Makes the database if it is not there, by `schema` if it has no tables.
pub(super) fn create(path: &Path, schema: Option<&str>, heap_bytes: u64) -> Result<(), String> {
    let said = |error: rusqlite::Error| format!("{}: {error}", path.display());
    let connection = connect(path, Lane::Write, &Watch::default()).map_err(said)?;
    limits::set_heap(&connection, heap_bytes).map_err(said)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
        .map_err(said)?;
    let Some(schema) = schema.filter(|_| tables == 0) else { return Ok(()) };
    let outcome = connection.execute_batch("BEGIN IMMEDIATE").and_then(|()| connection.execute_batch(schema));
    outcome.and_then(|()| connection.execute_batch("COMMIT")).map_err(|error| format!("the schema: {error}"))
}

/// A database to prepare statements with, and to change nothing: the one at this path, or a new one in memory.
///
/// # Errors
/// In words for the operator.
pub(crate) fn open_to_look(database: Option<&Path>, schema: Option<&str>) -> Result<Connection, String> {
    let Some(path) = database else {
        let connection = Connection::open_in_memory().map_err(|error| error.to_string())?;
        narrow(&connection, &Watch::default()).map_err(|error| error.to_string())?;
        let made = connection.execute_batch(schema.unwrap_or_default());
        return made.map(|()| connection).map_err(|error| format!("the schema: {error}"));
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let said = |error: Error| format!("{}: {error}", path.display());
    let connection = Connection::open_with_flags(path, flags).map_err(said)?;
    narrow(&connection, &Watch::default()).map_err(said)?;
    Ok(connection)
}

/// The limits of every connection, also of one that only looks, so that both say the same of statements.
fn narrow(connection: &Connection, watch: &Watch) -> rusqlite::Result<()> {
    limits::set(connection)?;
    functions::replace(connection, watch)
}

/// A connection for a thread of this lane, whose functions look at the clock of `watch`.
pub(super) fn connect(path: &Path, lane: Lane, watch: &Watch) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    narrow(&connection, watch)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // An acknowledged change is on disk, also when the machine loses power.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // There is no folder for temporary files.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    if lane == Lane::Read {
        connection.pragma_update(None, "query_only", true)?;
    }
    Ok(connection)
}

/// The text of a statement as SQLite takes it.
pub(super) fn sql(statement: &Statement) -> String {
    statement.sql(|number| format!("?{}", number + 1))
}

/// Whether a statement only reads.
///
/// # Errors
/// It cannot be prepared, or gives something else than it says.
pub(super) fn check(connection: &Connection, statement: &Statement) -> Result<bool, (usize, String)> {
    let text = sql(statement);
    crate::sql::check(statement, &text)?;
    let prepared = connection.prepare(&text).map_err(|error| at_line(statement, error))?;
    crate::sql::check_kind(statement, prepared.column_count())?;
    Ok(prepared.readonly())
}

/// Refuses a statement of the thread that writes which searches full text.
pub(super) fn check_search(
    connection: &mut Connection,
    tables: &TextTables,
    statement: &Statement,
) -> Result<(), (usize, String)> {
    let searched =
        tables.searched_by(connection, &sql(statement)).map_err(|error| at_line(statement, error))?;
    let Some(name) = searched else { return Ok(()) };
    let rule = format!(
        "it searches the words of `{name}`, which nothing interrupts, and would keep all writes waiting: find the \
         rows with a statement that reads, and name them by their `rowid` in one that writes or is part of a \
         transaction"
    );
    Err((statement.line, rule))
}

/// A statement's fault, and its line in the file.
fn at_line(statement: &Statement, error: Error) -> (usize, String) {
    match error {
        Error::SqlInputError { msg, sql, offset, .. } => {
            let before =
                usize::try_from(offset).ok().and_then(|offset| sql.get(..offset)).unwrap_or_default();
            (statement.sql_line + before.matches('\n').count(), msg)
        }
        error => (statement.line, error.to_string()),
    }
}

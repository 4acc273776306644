//! Limits of SQLite: every limit that it has, on every connection, and the memory of all connections.
//!
//! Sees: no value. Never: leaves one of SQLite's limits as wide as it comes.
//!
//! SQLite looks at the clock between instructions only. The input of one instruction is bounded here, so that it
//! is soon over; functions whose work is the product of two lengths are in `functions.rs`.

use rusqlite::limits::Limit;
use rusqlite::{Connection, Result};
use statements::FILE_MAX;
use wire::data::VALUES_MAX;

/// LIMIT: bytes of a value, and of a row; four times what all parameters of a call may have, and what an answer has by
/// default. A function that reads or writes each byte once takes some 20 ms for it.
pub(super) const LENGTH_MAX: i32 = 16 << 20;
/// LIMIT: bytes of a pattern of `LIKE` or `GLOB`, as SQLite has it.
pub(super) const PATTERN_MAX: i32 = 50_000;
/// Every limit of SQLite's, with what it is here. SQLite's own are 10 to 10,000 times as much, or the same.
const ALL: [(Limit, i32); 15] = [
    (Limit::SQLITE_LIMIT_LENGTH, LENGTH_MAX),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, FILE_MAX as i32),
    (Limit::SQLITE_LIMIT_COLUMN, 2000),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 500),
    (Limit::SQLITE_LIMIT_PARSER_DEPTH, 1000),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (Limit::SQLITE_LIMIT_VDBE_OP, 100_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 127),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_MAX),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, VALUES_MAX as i32),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 32),
    (Limit::SQLITE_LIMIT_TRIGGER_STEPS, 1000),
    (Limit::SQLITE_LIMIT_SCHEMA, 10_000),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Sets all limits of a connection.
pub(super) fn set(connection: &Connection) -> Result<()> {
    ALL.into_iter().try_for_each(|(limit, most)| connection.set_limit(limit, most).map(drop))
}

/// Lets SQLite have so much memory, on all connections of this process together. With more, a call fails.
pub(super) fn set_heap(connection: &Connection, bytes: u64) -> Result<()> {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    connection.pragma_update_and_check(None, "hard_heap_limit", bytes, |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sqlite3_limit` knows so many, and says -1 for any other.
    #[test]
    fn every_limit_of_sqlite_is_set() {
        let connection = Connection::open_in_memory().unwrap();
        set(&connection).unwrap();
        for (limit, most) in ALL {
            assert_eq!(connection.limit(limit).unwrap(), most, "{limit:?}");
        }
        let known = 1 + ALL.iter().map(|(limit, _)| *limit as i32).max().unwrap();
        assert_eq!(known as usize, ALL.len());
    }
}

//! The columns of statements, as SQLite describes them: by the types that tables declare, which bind nobody there.

use rusqlite::{Connection, OptionalExtension as _, Result};
use statements::{Statements, Type};

use super::open::sql;
use crate::describe::DescribedColumn;

/// The columns of each statement's rows.
pub(crate) fn describe(connection: &Connection, file: &Statements) -> Result<Vec<Vec<DescribedColumn>>> {
    let of_statement = |statement| {
        let prepared = connection.prepare(&sql(statement))?;
        let one = |(column, origin): (rusqlite::Column<'_>, rusqlite::ColumnMetadata<'_>)| {
            let never_null = match origin.table_name().zip(origin.origin_name()) {
                Some((table, name)) => is_never_null(connection, table, name)?,
                None => false,
            };
            let kind = column.decl_type().and_then(affinity);
            Ok(DescribedColumn { name: column.name().to_owned(), kind, nullable: !never_null })
        };
        prepared.columns().zip(prepared.columns_with_metadata()).map(one).collect()
    };
    file.statements.iter().map(of_statement).collect()
}

fn is_never_null(connection: &Connection, table: &str, column: &str) -> Result<bool> {
    // The key of a table may be NULL unless it is its number.
    let sql = "SELECT \"notnull\" OR (pk = 1 AND upper(type) = 'INTEGER') FROM pragma_table_info(?1) WHERE name = ?2";
    let found = connection.query_row(sql, [table, column], |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(false))
}

/// SQLite's rules of how a declared type is meant ("Datatypes In SQLite", 3.1), and `BOOLEAN`.
fn affinity(declared: &str) -> Option<Type> {
    let declared = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    Some(match () {
        () if has(&["INT"]) => Type::Int,
        () if has(&["CHAR", "CLOB", "TEXT"]) => Type::Text,
        () if has(&["BLOB"]) => Type::Blob,
        () if has(&["REAL", "FLOA", "DOUB"]) => Type::Real,
        () if has(&["BOOL"]) => Type::Bool,
        () => return None,
    })
}

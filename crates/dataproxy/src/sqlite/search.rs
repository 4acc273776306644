//! Which statements search full text: a search is one instruction of SQLite's, and takes the product of its words and
//! its texts.
//!
//! Sees: the operator's statements, and what the database plans for them. Never: carries one out.
//!
//! Nothing interrupts an instruction. A thread that only reads is given up and replaced; the one that writes holds the
//! database's lock, so others' writes would wait for a search of its. Everything else that takes long in one
//! instruction is bounded (`limits.rs`, `functions.rs`), or takes as long as the operator's own data say.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, ErrorCode, Result};

/// How a kind of table says in a plan that an index of words is searched ("The SQLite FTS3 and FTS4 Extensions",
/// "SQLite FTS5 Extension", and the `xBestIndex` of each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchModule {
    /// By the lower half of the number: none, by the number of the row, or by words.
    Fts3,
    /// By letters: `M` and `r` for `MATCH`, `L` for `LIKE`, `G` for `GLOB`.
    Fts5,
}

impl SearchModule {
    fn searches(self, index: &PlannedIndex<'_>) -> bool {
        match self {
            Self::Fts3 => index.number & 0xffff > 1,
            Self::Fts5 => index.text.contains(['M', 'r', 'L', 'G']),
        }
    }
}

/// A virtual table in a plan: its name in the statement, and its module's choice of an index.
#[derive(Debug, PartialEq, Eq)]
struct PlannedIndex<'a> {
    name: &'a str,
    number: i64,
    text: &'a str,
}

impl<'a> PlannedIndex<'a> {
    /// Reads a line of `EXPLAIN QUERY PLAN`; `None` if it is about something else.
    fn read(line: &'a str) -> Option<Self> {
        let (name, index) = line.rsplit_once(" VIRTUAL TABLE INDEX ")?;
        let name = name.strip_prefix("SCAN ").or_else(|| name.strip_prefix("SEARCH "))?;
        let (number, text) = index.split_once(':')?;
        let text = text.split(' ').next().unwrap_or_default();
        Some(Self { name, number: number.parse().ok()?, text })
    }
}

/// The virtual tables of a database, by their names in the lower case of ASCII, as SQLite compares names: those with an
/// index of words with their kind.
#[derive(Debug)]
pub(super) struct TextTables(HashMap<String, Option<SearchModule>>);

impl TextTables {
    /// Asks a database for its own. Plans of its connection have those of triggers from here on.
    pub(super) fn of(connection: &Connection) -> Result<Self> {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRIGGER_EQP, true)?;
        // Such a table has no page of its own.
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage = 0";
        let mut asked = connection.prepare(sql)?;
        let names: Vec<String> = asked.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
        let mut tables = HashMap::new();
        for name in names {
            match kind_of(connection, &name) {
                Ok(kind) => drop(tables.insert(name.to_ascii_lowercase(), kind)),
                // Its module or its tokenizer is not there: nothing else can be asked of it, and no statement is
                // prepared that uses it.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(tables))
    }

    /// The table whose words a statement searches, by the name that it has there.
    pub(super) fn searched_by(&self, connection: &mut Connection, sql: &str) -> Result<Option<String>> {
        if self.0.values().all(Option::is_none) {
            return Ok(None);
        }
        let reads = Arc::<Mutex<HashSet<String>>>::default();
        let seen = reads.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            if let AuthAction::Read { table_name, .. } = context.action {
                seen.lock().unwrap_or_else(PoisonError::into_inner).insert(table_name.to_ascii_lowercase());
            }
            Authorization::Allow
        }))?;
        let plan = plan(connection, sql);
        connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
        let reads = mem::take(&mut *reads.lock().unwrap_or_else(PoisonError::into_inner));
        let kinds: Vec<SearchModule> = reads.iter().filter_map(|name| *self.0.get(name)?).collect();
        let plan = plan?;
        let mut indexes = plan.iter().filter_map(|line| PlannedIndex::read(line));
        Ok(indexes.find(|index| self.is_search(index, &kinds)).map(|index| index.name.to_owned()))
    }

    /// Whether words are searched. A statement may give a table another name: then it is one of those that the
    /// statement reads.
    fn is_search(&self, index: &PlannedIndex<'_>, read: &[SearchModule]) -> bool {
        match self.0.get(&index.name.to_ascii_lowercase()) {
            Some(kind) => kind.is_some_and(|kind| kind.searches(index)),
            None => read.iter().any(|kind| kind.searches(index)),
        }
    }
}

/// The kind of a virtual table, if it has an index of words: then it has a hidden column of its own name, and with FTS5
/// another one, `rank`.
fn kind_of(connection: &Connection, name: &str) -> Result<Option<SearchModule>> {
    let sql = "SELECT name FROM pragma_table_xinfo(?1) WHERE hidden = 1";
    let mut asked = connection.prepare(sql)?;
    let lower = |name: String| name.to_ascii_lowercase();
    let hidden: HashSet<String> =
        asked.query_map([name], |row| row.get(0).map(lower))?.collect::<Result<_>>()?;
    let kind = if hidden.contains("rank") { SearchModule::Fts5 } else { SearchModule::Fts3 };
    Ok(hidden.contains(&name.to_ascii_lowercase()).then_some(kind))
}

/// SQLite's plan for a statement, and for the triggers that it has.
fn plan(connection: &Connection, sql: &str) -> Result<Vec<String>> {
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    let mut rows = explained.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        lines.push(row.get(3)?);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "
        CREATE TABLE notes (id INTEGER PRIMARY KEY, t, ids);
        CREATE TABLE plain (id INTEGER PRIMARY KEY, t);
        CREATE VIRTUAL TABLE old USING fts3(t, more);
        CREATE VIRTUAL TABLE words USING fts4(t, languageid=\"tongue\");
        CREATE VIRTUAL TABLE \"Some Text\" /* USING rtree( */ USING fts5(t, u, content=notes, content_rowid=id);
        CREATE VIRTUAL TABLE parts USING fts5(t, tokenize = 'trigram');
        CREATE VIRTUAL TABLE WÖRTER USING fts5(t);
        CREATE VIRTUAL TABLE boxes USING rtree(id, low, high);
        CREATE VIEW hits AS SELECT rowid AS id FROM \"Some Text\" WHERE \"Some Text\" MATCH 'a';
        CREATE TRIGGER found AFTER DELETE ON notes BEGIN DELETE FROM parts WHERE parts = old.t; END;
        CREATE TRIGGER kept AFTER UPDATE ON plain BEGIN DELETE FROM parts WHERE rowid = old.id; END;";

    /// Statements that search, and the name that the table has there.
    const SEARCHES: [(&str, &str); 22] = [
        ("DELETE FROM wÖrter WHERE t MATCH :a", "wÖrter"),
        ("DELETE FROM words WHERE words MATCH :a", "words"),
        ("DELETE FROM old WHERE t MATCH :a", "old"),
        ("DELETE FROM old WHERE more MATCH :a AND rowid > 7", "old"),
        ("DELETE FROM words WHERE t MATCH :a AND tongue = 3", "words"),
        ("UPDATE words SET t = 'x' WHERE words MATCH 'a'", "words"),
        ("DELETE FROM \"some text\" WHERE \"Some Text\" MATCH :a", "some text"),
        ("DELETE FROM \"Some Text\" WHERE \"Some Text\" = :a", "Some Text"),
        ("DELETE FROM notes WHERE id IN (SELECT rowid FROM \"Some Text\"(:a))", "Some Text"),
        ("DELETE FROM plain WHERE id IN (SELECT s.rowid FROM \"Some Text\" AS s WHERE s.t MATCH :a)", "s"),
        ("DELETE FROM plain WHERE id IN (SELECT w.rowid FROM words AS w WHERE w.t MATCH :a)", "w"),
        ("DELETE FROM plain WHERE id IN (SELECT n.id FROM plain n LEFT JOIN words w ON w.t MATCH n.t)", "w"),
        ("DELETE FROM parts WHERE t LIKE :a", "parts"),
        ("DELETE FROM parts WHERE t GLOB :a AND rowid < 8", "parts"),
        ("INSERT INTO plain (t) SELECT t FROM parts WHERE t LIKE '%abc%' ORDER BY rowid", "parts"),
        ("INSERT INTO plain (t) SELECT snippet(words) FROM words WHERE words MATCH :a RETURNING id", "words"),
        ("INSERT INTO plain (t) SELECT b.low FROM boxes b, parts p WHERE b.low > 3 AND p.t MATCH :a", "p"),
        ("UPDATE plain SET t = (SELECT count(*) FROM hits)", "Some Text"),
        (
            "WITH found AS (SELECT rowid AS id FROM old WHERE old MATCH :a) DELETE FROM plain WHERE id IN found",
            "old",
        ),
        ("UPDATE plain SET t = p.t FROM parts AS p WHERE p.parts MATCH :a AND p.rank MATCH 'bm25(1)'", "p"),
        ("SELECT max(rank) FROM \"Some Text\" WHERE \"Some Text\" MATCH 'a OR b' ORDER BY rank", "Some Text"),
        ("DELETE FROM notes WHERE id = :a", "parts"),
    ];

    const OTHERS: [&str; 16] = [
        "INSERT INTO words (t) VALUES (:a)",
        "INSERT INTO words (words) VALUES ('optimize')",
        "DELETE FROM words WHERE rowid = :a",
        "DELETE FROM words WHERE docid IN (SELECT value FROM json_each(:a))",
        "DELETE FROM parts WHERE rowid IN (SELECT value FROM json_each(:a, '$.ids'))",
        "UPDATE old SET t = :a WHERE rowid BETWEEN 3 AND 8",
        "UPDATE \"Some Text\" SET t = :a WHERE rowid > :b",
        "DELETE FROM words",
        "DELETE FROM words WHERE tongue = 3",
        "INSERT INTO plain (t) SELECT t FROM words ORDER BY rowid DESC LIMIT 3",
        "INSERT INTO plain (t) SELECT t FROM parts ORDER BY rowid LIMIT 3",
        "DELETE FROM parts WHERE t NOT LIKE :a",
        "INSERT INTO \"Some Text\" (\"Some Text\", rowid, t) VALUES ('delete', :a, :b)",
        "DELETE FROM boxes WHERE low > 3 AND high < (SELECT count(*) FROM parts)",
        "UPDATE plain SET t = :a",
        "DELETE FROM plain WHERE id IN (SELECT id FROM boxes WHERE low > 3 AND high < 9)",
    ];

    fn searched(schema: &str, sql: &str) -> Option<String> {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        let tables = TextTables::of(&connection).unwrap();
        tables.searched_by(&mut connection, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    #[test]
    fn a_search_is_found_in_whatever_statement_it_is() {
        for (sql, name) in SEARCHES {
            assert_eq!(searched(SCHEMA, sql).as_deref(), Some(name), "{sql}");
        }
    }

    #[test]
    fn other_statements_are_none() {
        for sql in OTHERS {
            assert_eq!(searched(SCHEMA, sql), None, "{sql}");
        }
        let none = "CREATE TABLE plain (id INTEGER PRIMARY KEY, t)";
        assert_eq!(searched(none, "UPDATE plain SET t = (SELECT count(*) FROM json_each(:a, :b))"), None);
    }

    #[test]
    fn a_table_that_cannot_be_opened_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.db");
        // As of a program that has more modules and tokenizers.
        let others = "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES
            ('table', 'icu', 'icu', 0, 'CREATE VIRTUAL TABLE icu USING fts4(t, tokenize=icu)'),
            ('table', 'odd', 'odd', 0, 'CREATE VIRTUAL TABLE odd USING spellfix1')";
        Connection::open(&path).unwrap().execute_batch(&format!("{SCHEMA}{others}")).unwrap();
        let mut connection = Connection::open(&path).unwrap();
        assert!(connection.prepare("SELECT * FROM icu").is_err());
        let tables = TextTables::of(&connection).unwrap();
        let mut searched = |sql| tables.searched_by(&mut connection, sql).unwrap();
        assert_eq!(searched("DELETE FROM words WHERE words MATCH :a").as_deref(), Some("words"));
        assert_eq!(searched("DELETE FROM plain"), None);
    }
}

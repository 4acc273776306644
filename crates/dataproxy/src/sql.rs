//! Classifies a statement by its first word.

use statements::{Statement, first_word};

/// Statements that would change the connection of all services, or reach outside of the database.
const NEVER: [&str; 30] = [
    "abort",
    "attach",
    "begin",
    "close",
    "commit",
    "copy",
    "deallocate",
    "declare",
    "detach",
    "discard",
    "end",
    "explain",
    "fetch",
    "handler",
    "kill",
    "listen",
    "load",
    "lock",
    "pragma",
    "prepare",
    "release",
    "reset",
    "rollback",
    "savepoint",
    "set",
    "start",
    "unlisten",
    "unlock",
    "use",
    "vacuum",
];

/// How a mistake is said.
pub(crate) fn mistake(statement: &Statement, line: usize, rule: &str) -> String {
    format!("line {line}: `{}`: {rule}", statement.name)
}

/// Refuses a statement that is not for one, with the line.
pub(crate) fn check(statement: &Statement, text: &str) -> Result<(), (usize, String)> {
    let word = first_word(text);
    if !NEVER.contains(&&*word) {
        return Ok(());
    }
    let word = word.to_uppercase();
    let rule = "is not for a statement: it would hold for all services; a `-- transaction:` names statements that \
        hold together";
    Err((statement.line, format!("`{word}` {rule}")))
}

/// Refuses a statement that gives rows, or none, where it says the opposite, with the line.
pub(crate) fn check_kind(statement: &Statement, columns: usize) -> Result<(), (usize, String)> {
    let wrong = |rule: &str| Err((statement.line, rule.to_owned()));
    match (statement.kind.has_rows(), columns) {
        (true, 0) => wrong("it gives no rows: say `:exec` or `:execrows`, or add `RETURNING`"),
        (false, 1..) => wrong("it gives rows: say `:one` or `:many`"),
        _ => Ok(()),
    }
}

//! Files of statements, as far as they say what is wrong with them without a database.
//!
//! Runs in: the command `check`, as whoever types it. Sees: a file of the operator's. Never: runs in the launcher,
//! which leaves it to the data proxy to read the file.
//!
//! These are warnings: whatever they say, the server runs, and everything else is served.

use std::io::{self, Read as _};
use std::path::Path;

use config::{Finding, Opener};
use statements::{Dialect, FILE_MAX, StatementMistake};

use super::finding::warning;

/// LIMIT: mistakes of one file that are said.
const MISTAKES_MAX: usize = 20;

/// What is wrong in a file, of which these services may call statements.
///
/// # Errors
/// It cannot be read.
pub(super) fn mistakes(
    path: &Path,
    opener: &Opener,
    dialect: Dialect,
    services: &[&str],
) -> io::Result<Vec<Finding>> {
    let mut text = String::new();
    opener.file(path)?.take(FILE_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(match statements::parse(&text, dialect) {
        Err(mistakes) => mistakes.into_iter().take(MISTAKES_MAX).map(finding).collect(),
        Ok(found) => {
            let unknown = found.unknown_services(services).into_iter();
            let unknown = unknown.map(|(name, line)| unknown_service(name, line));
            let overlaps = found.overlaps(|_, statement| statement.usual_keys()).into_iter();
            unknown.chain(overlaps.take(MISTAKES_MAX).map(odd)).collect()
        }
    })
}

fn finding(mistake: StatementMistake) -> Finding {
    let StatementMistake { line, rule, help } = mistake;
    let help = help.unwrap_or_else(|| "the guide to databases says what such a file has".into());
    warning(format!("has a mistake in line {line}, so its data proxy will not start: {rule}"), help)
}

fn odd(StatementMistake { rule, help, .. }: StatementMistake) -> Finding {
    warning(format!("has statements whose keys overlap: {rule}"), help.unwrap_or_default())
}

fn unknown_service(name: &str, line: usize) -> Finding {
    warning(
        format!(
            "grants something in line {line} to `{name}`, which is no service with this source, so its data proxy will not start"
        ),
        format!("give the service the source in its `data`, or take {name} out of `-- services:`"),
    )
}

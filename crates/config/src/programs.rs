//! Decoding of what programs of the operator's have in common, wherever they are named: the command, and what it may
//! read and do.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: let a
//! program be searched for in PATH.

use std::path::{Path, PathBuf};

use crate::decode::{Entry, Table};
use crate::diagnostic::Problems;
use crate::parse::{Fault, names};
use crate::place::At;

/// Whether a program may make code while it runs.
pub(crate) fn jit(table: &Table<'_>, problems: &mut Problems) -> bool {
    table.get("jit").and_then(|entry| entry.boolean(problems)).unwrap_or(false)
}

/// The argument vector, and its program's absolute path.
pub(crate) fn command_of(
    entry: &Entry<'_>,
    dir: &Path,
    problems: &mut Problems,
) -> Option<(Vec<String>, At<PathBuf>)> {
    let elements = entry.elements(problems)?;
    let Some(first) = elements.first() else {
        let help = "write the program and its arguments, for example `[\"bin/search\"]`";
        let message = format!("`{}` is empty; it starts with a program", entry.key());
        problems.report_help(entry.offset, message, help);
        return None;
    };
    let program = first.parsed(|text| program_path(text).map(|()| dir.join(text)), problems);
    let rest = elements.iter().skip(1).filter_map(|element| element.string(names::no_nul, problems));
    let arguments: Vec<String> = rest.map(|argument| argument.value).collect();
    let named = first.plain()?.to_owned();
    Some((std::iter::once(named).chain(arguments).collect(), program?))
}

fn program_path(text: &str) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(Fault::new("the program's path is empty"));
    }
    names::literal(text)?;
    names::no_nul(text)
}

pub(crate) fn folders(
    key: &'static str,
    table: &Table<'_>,
    dir: &Path,
    problems: &mut Problems,
) -> Vec<At<PathBuf>> {
    let elements = table.get(key).and_then(|entry| entry.elements(problems)).unwrap_or_default();
    elements.iter().filter_map(|element| element.path(dir, problems)).collect()
}

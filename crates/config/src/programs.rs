//! Decoding of what programs of the operator's have in common, wherever they are named: the command, and what it may
//! read and do.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: let a
//! program be searched for in PATH.

use std::path::{Path, PathBuf};

use crate::decode::{Entry, Table, narrow};
use crate::diagnostic::Problems;
use crate::parse::{KeyFault, names};
use crate::place::At;
use crate::rules;
use crate::schema::{Recycle, Workers};

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

fn program_path(text: &str) -> Result<(), KeyFault> {
    if text.is_empty() {
        return Err(KeyFault::new("the program's path is empty"));
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

/// When the process of a site or a service is replaced.
pub(crate) fn recycle(table: &Table<'_>, problems: &mut Problems) -> Recycle {
    let requests = table.get("max_requests").and_then(|entry| entry.count(&rules::MAX_REQUESTS, problems));
    let age = table.get("max_age").and_then(|entry| entry.duration_ms(&rules::MAX_AGE_MS, problems));
    let memory = table.get("recycle_memory").and_then(|entry| entry.bytes(&rules::MEMORY_MAX, problems));
    Recycle { requests, age_ms: age.map(|ms| narrow(Some(ms))), memory }
}

/// How many processes a site or a service has: a number, or the least and the most.
pub(crate) fn workers(table: &Table<'_>, problems: &mut Problems) -> Workers {
    let Some(entry) = table.get("workers") else { return Workers::default() };
    let count = |entry: &Entry<'_>, problems: &mut Problems| {
        entry.count(&rules::WORKERS, problems).map(|count| count as u16)
    };
    if !entry.is_table() {
        let count = count(&entry, problems).unwrap_or(1);
        return Workers { min: count, max: count };
    }
    let Some(mut table) = entry.table(rules::WORKERS_TABLE.0, problems) else { return Workers::default() };
    table.check_keys(rules::WORKERS_TABLE, problems);
    let min = table.get("min").map_or(Some(1), |entry| count(&entry, problems));
    let max = table.require("max", "4", problems).and_then(|entry| count(&entry, problems));
    let (Some(min), Some(max)) = (min, max) else { return Workers::default() };
    if max < min {
        let message = format!("`max` of `workers` is {max}, which is less than its `min`, {min}");
        problems.report_help(
            entry.offset,
            message,
            format!("write `workers = {{ min = {max}, max = {min} }}`"),
        );
    }
    Workers { min, max }
}

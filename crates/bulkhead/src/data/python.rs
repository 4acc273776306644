//! Functions in Python, for the package bulkhead_service.

use std::fmt::Write as _;

use statements::{Parameter, Statement, StatementKind, Transaction, Type};

use super::generate::{Callable, Column, camel, check_column, steps};

/// Words that no attribute or function can have.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// The text of a module.
///
/// # Errors
/// What cannot be written so.
pub(super) fn write(what: &Callable<'_>) -> Result<String, String> {
    let (mut rows, mut functions) = (String::new(), String::new());
    for statement in &what.statements {
        let columns = what.columns(statement);
        if !columns.is_empty() {
            rows += &row(statement, columns)?;
        }
        functions += &function(statement, columns);
    }
    for group in &what.transactions {
        functions += &transaction(what, group);
    }
    let (source, name) = (what.source, camel(what.source));
    Ok(format!(
        "\"\"\"The statements of `{source}`. Written by `bulkhead data gen`: change the file of statements, and have it written again.\"\"\"\n\n\
         from __future__ import annotations\n\nfrom dataclasses import dataclass\nfrom typing import Any, Optional\n\n\
         from bulkhead_service import DataSource, Rows\n\n\n{rows}\
         class {name}:\n    \"\"\"The source `{source}`, with a function for each statement.\"\"\"\n\n    \
         def __init__(self, source: DataSource) -> None:\n        self.source = source\n{functions}"
    ))
}

fn row(statement: &Statement, columns: &[Column]) -> Result<String, String> {
    let mut text = format!(
        "@dataclass(frozen=True)\nclass {}:\n    \"\"\"A row of `{}`.\"\"\"\n\n",
        camel(&statement.name),
        statement.name
    );
    for column in columns {
        check_column(statement, column)?;
        if KEYWORDS.contains(&&*column.name) {
            let (line, name) = (statement.line, &statement.name);
            return Err(format!(
                "line {line}: `{name}`: the column `{}` is a word of Python's: write `AS name` behind it",
                column.name
            ));
        }
        let kind = column.kind.map_or("Any", kind);
        let kind = if column.nullable && column.kind.is_some() {
            format!("Optional[{kind}]")
        } else {
            kind.to_owned()
        };
        let _ = writeln!(text, "    {}: {kind}", column.name);
    }
    Ok(text + "\n\n")
}

fn kind(kind: Type) -> &'static str {
    match kind {
        Type::Int => "int",
        Type::Real => "float",
        Type::Text => "str",
        Type::Blob => "bytes",
        Type::Bool => "bool",
    }
}

fn parameter(name: &str, about: &Parameter) -> String {
    let kind = kind(about.kind);
    if about.nullable { format!(", {name}: Optional[{kind}]") } else { format!(", {name}: {kind}") }
}

fn function(statement: &Statement, columns: &[Column]) -> String {
    let name = &statement.name;
    let parameters: String =
        statement.parameters.iter().map(|one| parameter(&word(&one.name), one)).collect();
    let values: String = statement.parameters.iter().map(|one| format!(", {}", word(&one.name))).collect();
    let row = if columns.is_empty() { "Any".to_owned() } else { camel(name) };
    let into = if columns.is_empty() { String::new() } else { format!(", into={row}") };
    let (gives, call) = match statement.kind {
        StatementKind::One => (format!("Optional[{row}]"), format!("one(\"{name}\"{values}{into})")),
        StatementKind::Many => (format!("list[{row}]"), format!("many(\"{name}\"{values}{into})")),
        StatementKind::Exec | StatementKind::ExecRows => {
            ("int".to_owned(), format!("exec(\"{name}\"{values})"))
        }
    };
    format!(
        "\n    async def {}(self{parameters}) -> {gives}:\n        return await self.source.{call}\n",
        word(name)
    )
}

fn transaction(what: &Callable<'_>, group: &Transaction) -> String {
    let steps = steps(what.file, group);
    let parameters: String = steps.iter().flatten().map(|(name, one)| parameter(name, one)).collect();
    let with = |step: &Vec<(String, &Parameter)>| {
        let names: Vec<&str> = step.iter().map(|(name, _)| name.as_str()).collect();
        format!(", [{}]", names.join(", "))
    };
    let values: String = steps.iter().map(with).collect();
    let name = &group.name;
    format!(
        "\n    async def {}(self{parameters}) -> list[Rows]:\n        return await self.source.transaction(\"{name}\"{values})\n",
        word(name)
    )
}

/// A name that is none of Python's words, nor the object's own.
fn word(name: &str) -> String {
    if KEYWORDS.contains(&name) || ["self", "source"].contains(&name) {
        format!("{name}_")
    } else {
        name.to_owned()
    }
}

//! Functions in Rust, for the crate bulkhead-service.

use std::fmt::Write as _;

use statements::{Parameter, Statement, StatementKind, Transaction, Type};

use super::generate::{Callable, Column, camel, check_column, steps};

/// LIMIT: values of a call, which go into a tuple.
const VALUES_MAX: usize = 16;

/// Words that no field or function can have as they are.
const KEYWORDS: [&str; 41] = [
    "as", "async", "await", "box", "break", "const", "continue", "do", "dyn", "else", "enum", "extern",
    "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move",
    "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type",
    "unsafe", "use", "where",
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
        functions += &function(statement, columns)?;
    }
    for group in &what.transactions {
        functions += &transaction(what, group);
    }
    let (source, name) = (what.source, camel(what.source));
    let uses = ["AnyValue", "DataError", "DataSource", "Rows"];
    let used = |word: &&str| rows.contains(*word) || functions.contains(*word) || *word == "DataSource";
    let uses = uses.into_iter().filter(|word| used(word)).collect::<Vec<_>>().join(", ");
    Ok(format!(
        "//! The statements of `{source}`. Written by `bulkhead data gen`: change the file of statements, and have it written again.\n\n\
         use bulkhead_service::{{{uses}}};\n\n{rows}\
         /// The source `{source}`, with a function for each statement.\n#[derive(Clone, Debug)]\n\
         pub struct {name}(pub DataSource);\n\n\
         impl {name} {{\n{}}}\n",
        functions.trim_end_matches('\n').to_owned() + "\n"
    ))
}

fn row(statement: &Statement, columns: &[Column]) -> Result<String, String> {
    let mut text = format!(
        "/// A row of `{}`.\n#[derive(Clone, Debug, PartialEq, serde::Deserialize)]\npub struct {} {{\n",
        statement.name,
        camel(&statement.name)
    );
    for column in columns {
        check_column(statement, column)?;
        let kind = match column.kind {
            Some(Type::Int) => "i64",
            Some(Type::Real) => "f64",
            Some(Type::Text) => "String",
            Some(Type::Blob) => "Vec<u8>",
            Some(Type::Bool) => "bool",
            None => "AnyValue",
        };
        let kind = if column.nullable && column.kind.is_some() {
            format!("Option<{kind}>")
        } else {
            kind.to_owned()
        };
        let _ = writeln!(text, "    pub {}: {kind},", word(&column.name));
    }
    Ok(text + "}\n\n")
}

fn function(statement: &Statement, columns: &[Column]) -> Result<String, String> {
    let name = &statement.name;
    if statement.parameters.len() > VALUES_MAX {
        return Err(format!("line {}: `{name}` has more than {VALUES_MAX} parameters", statement.line));
    }
    let parameters: String =
        statement.parameters.iter().map(|one| format!(", {}: {}", word(&one.name), kind(one))).collect();
    let values = tuple(statement.parameters.iter().map(|one| word(&one.name)));
    let row = if columns.is_empty() { "Vec<AnyValue>".to_owned() } else { camel(name) };
    let (gives, call) = match statement.kind {
        StatementKind::One => (format!("Option<{row}>"), "one"),
        StatementKind::Many => (format!("Vec<{row}>"), "many"),
        StatementKind::Exec | StatementKind::ExecRows => ("u64".to_owned(), "exec"),
    };
    Ok(format!(
        "    pub async fn {}(&self{parameters}) -> Result<{gives}, DataError> {{\n        self.0.{call}(\"{name}\", {values}).await\n    }}\n\n",
        word(name)
    ))
}

fn transaction(what: &Callable<'_>, group: &Transaction) -> String {
    let steps = steps(what.file, group);
    let parameters: String =
        steps.iter().flatten().map(|(name, one)| format!(", {name}: {}", kind(one))).collect();
    let with = |step: &Vec<(String, &Parameter)>| {
        format!(".with({})", tuple(step.iter().map(|(name, _)| name.clone())))
    };
    let values: String = steps.iter().map(with).collect();
    format!(
        "    pub async fn {}(&self{parameters}) -> Result<Vec<Rows>, DataError> {{\n        self.0.transaction(\"{}\"){values}.run().await\n    }}\n\n",
        word(&group.name),
        group.name
    )
}

/// What a parameter is given as.
fn kind(parameter: &Parameter) -> String {
    let kind = match parameter.kind {
        Type::Int => "i64",
        Type::Real => "f64",
        Type::Text => "&str",
        Type::Blob => "&[u8]",
        Type::Bool => "bool",
    };
    if parameter.nullable { format!("Option<{kind}>") } else { kind.to_owned() }
}

fn tuple(values: impl Iterator<Item = String>) -> String {
    let values: String = values.map(|value| format!("{value}, ")).collect();
    let values =
        if values.matches(", ").count() > 1 { values.trim_end_matches(", ") } else { values.trim_end() };
    format!("({values})")
}

fn word(name: &str) -> String {
    if KEYWORDS.contains(&name) { format!("r#{name}") } else { name.to_owned() }
}

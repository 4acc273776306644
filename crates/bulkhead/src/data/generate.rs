//! `bulkhead data gen`: typed functions for the statements of a source, one for each.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the operator's file of statements, what the database
//! says of their columns. Never: asks the database for a row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use config::DataSource;
use statements::{Parameter, Statement, Statements, Transaction, Type};

use super::{command_for, python, run, rust, sources};
use crate::fault::Fault;
use crate::left_out;
use crate::locate;

/// What is to be generated.
#[derive(Debug, Args)]
pub struct Generate {
    /// The source, as SITE/SOURCE
    #[arg(value_name = "SOURCE")]
    source: String,
    /// In which language.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// What this service may call [default: all]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// In what functions can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    /// For the crate bulkhead-service.
    Rust,
    /// For the package bulkhead_service.
    Python,
}

/// A column of a statement's rows: its name, its type if the database says one, and whether it may be NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Option<Type>,
    pub(super) nullable: bool,
}

/// What there is to be called.
pub(super) struct Callable<'s> {
    /// The name of the source.
    pub(super) source: &'s str,
    /// Its file of statements.
    pub(super) file: &'s Statements,
    pub(super) statements: Vec<&'s Statement>,
    pub(super) transactions: Vec<&'s Transaction>,
    columns: BTreeMap<String, Vec<Column>>,
}

impl Callable<'_> {
    /// The columns of a statement's rows; none if the database does not say yet which there are.
    pub(super) fn columns(&self, statement: &Statement) -> &[Column] {
        self.columns.get(&statement.name).map_or(&[], Vec::as_slice)
    }
}

/// Writes functions for the statements of a source.
pub fn generate(config: Option<&Path>, what: &Generate) -> Result<ExitCode, Fault> {
    let named = std::slice::from_ref(&what.source);
    let (config, left_out) = left_out::read(&locate::config(config)?, named)?;
    let program = locate::data_proxy()?;
    let sources = sources(&config, named).map_err(|fault| left_out.beside(fault))?;
    let Some((_, site, data)) = sources.first() else { return Ok(ExitCode::FAILURE) };
    if let Some(service) =
        what.service.as_ref().filter(|name| site.services_with(&data.name).all(|one| one.name != **name))
    {
        return Err(Fault::Usage(format!(
            "no service {service:?} of {} has {} in its `data`",
            site.name, data.name
        )));
    }
    let file = read(data)?;
    let (command, _) = command_for(&program, "describe", &config, (site, data));
    let described = match run(command)? {
        Ok(described) => described,
        Err(mistakes) => return Err(Fault::Failed(mistakes.join("\n"))),
    };
    let is_granted = |services: &[String]| what.service.as_ref().is_none_or(|name| services.contains(name));
    let granted = file.statements.iter().filter(|one| is_granted(&one.services));
    let callable = Callable {
        source: &data.name,
        file: &file,
        statements: granted.filter(|one| !one.is_for_transactions()).collect(),
        transactions: file.transactions.iter().filter(|one| is_granted(&one.services)).collect(),
        columns: columns(&described),
    };
    let text = match what.lang {
        Language::Rust => rust::write(&callable),
        Language::Python => python::write(&callable),
    };
    let text = text.map_err(Fault::Failed)?;
    match &what.out {
        Some(path) => {
            std::fs::write(path, text).map_err(Fault::io(format_args!("cannot write {}", path.display())))?
        }
        None => crate::table::print(text.trim_end())?,
    }
    Ok(left_out.say())
}

fn read(data: &DataSource) -> Result<Statements, Fault> {
    let elsewhere = || {
        let name = &data.name;
        Fault::Usage(format!(
            "the statements of {name:?} are on the machine that holds the database: generate there"
        ))
    };
    let path = data.statements.as_deref().ok_or_else(elsewhere)?;
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(Fault::io(format_args!("cannot read {shown}")))?;
    let dialect = data.server().map(|server| server.engine);
    let said = |mistakes: Vec<statements::StatementMistake>| {
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    statements::parse(&text, dialect).map_err(|mistakes| Fault::Failed(said(mistakes)))
}

/// What `dataproxy describe` has printed, by statement.
fn columns(described: &str) -> BTreeMap<String, Vec<Column>> {
    let mut found: BTreeMap<String, Vec<Column>> = BTreeMap::new();
    for line in described.lines() {
        let mut words = line.split('\t');
        let (Some(statement), Some(name), Some(kind), Some(nullable)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let kind = Type::ALL.into_iter().find_map(|(word, known)| (word == kind).then_some(known));
        let column = Column { name: name.to_owned(), kind, nullable: nullable == "true" };
        found.entry(statement.to_owned()).or_default().push(column);
    }
    found
}

/// `user_by_id` as `UserById`.
pub(super) fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    name.split(['_', '-', '.']).map(capital).collect()
}

/// The parameters of a transaction, for each of its statements: their names have the place of the statement behind
/// them.
pub(super) fn steps<'s>(
    file: &'s Statements,
    transaction: &Transaction,
) -> Vec<Vec<(String, &'s Parameter)>> {
    let of_step = |(at, step): (usize, &usize)| {
        let parameters = file.statements[*step].parameters.iter();
        parameters.map(|one| (format!("{}_{}", one.name, at + 1), one)).collect()
    };
    transaction.steps.iter().enumerate().map(of_step).collect()
}

/// Refuses a name that is none in a program.
pub(super) fn check_column(statement: &Statement, column: &Column) -> Result<(), String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_good = column.name.chars().all(is_letter)
        && !column.name.starts_with(|c: char| c.is_ascii_digit())
        && !column.name.is_empty();
    match is_good {
        true => Ok(()),
        false => Err(format!(
            "line {}: `{}`: the column {:?} has no name for a program: write `AS name` behind it",
            statement.line, statement.name, column.name
        )),
    }
}

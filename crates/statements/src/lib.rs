//! Files of named statements: what a service may ask of a database, and which service may.
//!
//! Runs in: data proxies, and the `bulkhead` command; pure. Sees: files of the operator's. Never: reads SQL, but for
//! where its strings, comments and parameters are, and, to show it to the operator, which tables its words name; or
//! asks a server.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3 (a service calls what
//! its database proxy offers by name, and never sends SQL); the shape of the files is sqlc's, whose users know
//! `-- name: ... :one`.
//!
//! ```sql
//! -- name: user_by_id :one
//! -- services: profile, search
//! -- params: id int
//! -- timeout: 500ms
//! SELECT id, name FROM users WHERE id = :id;
//!
//! -- transaction: transfer
//! -- services: bank
//! -- statements: withdraw, deposit
//! ```

mod body;
mod command;
mod header;
mod keys;
mod parse;
#[cfg(test)]
mod tests;
mod usual;
mod words;

use std::fmt;
use std::time::Duration;

pub use config::Engine;
pub use keys::{KeyPlaces, key_places};
pub use parse::parse;
pub use usual::names;
pub use words::{NamedTable, first_word, has_word, only_reads};

/// LIMIT: bytes of a file.
pub const FILE_MAX: usize = 1 << 20;
/// LIMIT: statements and transactions of a file; each connection keeps all of them prepared.
pub const STATEMENTS_MAX: usize = 1000;
/// LIMIT: parameters of a statement.
pub const PARAMETERS_MAX: usize = 100;
/// LIMIT: statements of a transaction.
pub const STEPS_MAX: usize = 32;
/// The longest name of a statement, a transaction, a parameter or a service with its site.
pub const NAME_MAX: usize = 63;
/// Rows of an answer, unless a statement says `-- max_rows:`.
pub const MAX_ROWS: u32 = 10_000;
/// Bytes of an answer, unless a statement says `-- max_bytes:`.
pub const MAX_BYTES: u32 = 4 << 20;
/// How long a statement may take, unless it says `-- timeout:`.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Whose language a file has: where a string ends, and what stands for a parameter, differ; `None` for SQLite's. In
/// PostgreSQL's, `?` is an operator, and `E'...'` has escapes; in MariaDB's and MySQL's, `#` begins a comment, and
/// strings have no escapes (`NO_BACKSLASH_ESCAPES`). Redis's are commands.
pub type Dialect = Option<Engine>;

/// The result of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// The first row, if there is any.
    One,
    /// Rows.
    Many,
    /// Nothing.
    Exec,
    /// How many rows it has changed.
    ExecRows,
}

impl StatementKind {
    /// How a file calls it.
    pub const ALL: [(&'static str, Self); 4] =
        [(":one", Self::One), (":many", Self::Many), (":exec", Self::Exec), (":execrows", Self::ExecRows)];

    /// Whether it gives rows.
    pub fn has_rows(self) -> bool {
        matches!(self, Self::One | Self::Many)
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 64 bits with a sign.
    Int,
    /// A number of double precision.
    Real,
    /// Text in UTF-8.
    Text,
    /// Bytes.
    Blob,
    /// True or false.
    Bool,
}

impl Type {
    /// How a file calls it.
    pub const ALL: [(&'static str, Self); 5] = [
        ("int", Self::Int),
        ("real", Self::Real),
        ("text", Self::Text),
        ("blob", Self::Blob),
        ("bool", Self::Bool),
    ];

    /// How a file calls this one.
    pub fn word(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(word, known)| (known == self).then_some(word)).unwrap_or_default()
    }
}

/// A value that a caller gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// As it stands in the statement, behind a colon.
    pub name: String,
    /// Its type.
    pub kind: Type,
    /// Whether it may be NULL as well: `int?`.
    pub nullable: bool,
}

/// A piece of a statement's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// SQL, as written.
    Text(String),
    /// The place of a parameter, by its number from 0 on.
    Parameter(usize),
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// By which it is called.
    pub name: String,
    /// Its result.
    pub kind: StatementKind,
    /// The services that may call it by itself; none if it is for transactions alone.
    pub services: Vec<String>,
    /// In the order in which callers give them.
    pub parameters: Vec<Parameter>,
    /// The most rows of an answer.
    pub max_rows: u32,
    /// The most bytes of an answer.
    pub max_bytes: u32,
    /// How long it may take.
    pub timeout: Duration,
    /// The line of its `-- name:`, from 1 on.
    pub line: usize,
    /// The line where its SQL begins.
    pub sql_line: usize,
    /// Its words, if it is a command of Redis's; it has no SQL then.
    pub words: Vec<Word>,
    pub(crate) pieces: Vec<Piece>,
}

/// A word of a command: text and parameters, one after the other.
pub type Word = Vec<WordPart>;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordPart {
    /// Bytes, as written.
    Bytes(Vec<u8>),
    /// The place of a parameter, by its number from 0 on.
    Parameter(usize),
}

impl Statement {
    /// Whether nobody calls it but as a part of a transaction.
    pub fn is_for_transactions(&self) -> bool {
        self.services.is_empty()
    }

    /// Its text, with what a database writes for the parameter of each number, from 0 on.
    pub fn sql(&self, mut placeholder: impl FnMut(usize) -> String) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Parameter(number) => placeholder(*number),
        };
        self.pieces.iter().map(piece).collect()
    }
}

/// Statements that are carried out all or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// By which it is called; no statement has the same name.
    pub name: String,
    /// The services that may call it. They need no right to its statements.
    pub services: Vec<String>,
    /// Its statements, in order, by their places in the file's list.
    pub steps: Vec<usize>,
    /// How long all of it may take.
    pub timeout: Duration,
    /// The line of its `-- transaction:`, from 1 on.
    pub line: usize,
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statements {
    /// In the order of the file.
    pub statements: Vec<Statement>,
    /// In the order of the file.
    pub transactions: Vec<Transaction>,
}

impl Statements {
    /// The services that the file names and that are none of these, each with the line of the statement that names it
    /// first.
    pub fn unknown_services(&self, services: &[impl AsRef<str>]) -> Vec<(&str, usize)> {
        let mut named = self.services();
        named.retain(|(name, _)| !services.iter().any(|known| known.as_ref() == *name));
        named
    }

    /// Every service that is named, each once, with the line of the statement that names it first.
    fn services(&self) -> Vec<(&str, usize)> {
        let of_statements = self.statements.iter().map(|statement| (&statement.services, statement.line));
        let of_transactions = self.transactions.iter().map(|group| (&group.services, group.line));
        let mut found: Vec<(&str, usize)> = Vec::new();
        for (services, line) in of_statements.chain(of_transactions) {
            for service in services {
                if !found.iter().any(|(known, _)| known == service) {
                    found.push((service, line));
                }
            }
        }
        found
    }
}

/// A fault of a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementMistake {
    /// From 1 on.
    pub line: usize,
    /// The rule that is broken, and by what.
    pub rule: String,
    /// The remedy, where there is one.
    pub help: Option<String>,
}

impl fmt::Display for StatementMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.rule)?;
        self.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

impl std::error::Error for StatementMistake {}

//! From the text of a file to its statements, or to everything that is wrong with it.

use std::collections::HashMap;
use std::time::Duration;

use crate::header::{Annotation, HeaderFault, identifier};
use crate::{
    Dialect, Engine, FILE_MAX, MAX_BYTES, MAX_ROWS, Parameter, STATEMENTS_MAX, STEPS_MAX, Statement,
    StatementKind, StatementMistake, Statements, TIMEOUT, Transaction, body, command,
};

const NAME: &str = "name";
const TRANSACTION: &str = "transaction";
/// The annotations of a statement, and of a transaction.
const OF_STATEMENT: &[&str] = &["services", "params", "max_rows", "max_bytes", "timeout"];
const OF_TRANSACTION: &[&str] = &["services", "statements", "timeout"];

/// Reads a file.
///
/// # Errors
/// Every mistake that was found, in the order of lines.
pub fn parse(text: &str, dialect: Dialect) -> Result<Statements, Vec<StatementMistake>> {
    let mut parser = Parser { dialect, ..Parser::default() };
    if text.len() > FILE_MAX {
        parser.mistake(
            1,
            format!("a file of statements has at most {FILE_MAX} bytes, and this has {}", text.len()),
            None,
        );
    } else {
        parser.read(text);
    }
    parser.mistakes.sort_by_key(|mistake| mistake.line);
    if parser.mistakes.is_empty() { Ok(parser.found) } else { Err(parser.mistakes) }
}

/// The lines from one `-- name:` or `-- transaction:` to the next.
struct Section<'a> {
    begin: Annotation<'a>,
    annotations: Vec<Annotation<'a>>,
    /// The text below the annotations, and its first line, from 1 on.
    body: (&'a str, usize),
}

#[derive(Default)]
struct Parser<'a> {
    dialect: Dialect,
    found: Statements,
    mistakes: Vec<StatementMistake>,
    /// The lines where names were given.
    names: HashMap<&'a str, usize>,
    /// The statements that transactions name, which may come later: the transaction, the names, the line.
    steps: Vec<(usize, Vec<&'a str>, usize)>,
    /// Which statements have `-- services:`, by number.
    grants: Vec<bool>,
}

impl<'a> Parser<'a> {
    fn read(&mut self, text: &'a str) {
        let (before, sections) = sections(text);
        if let Some((line, _)) = (1..).zip(before.lines()).find(|(_, line)| !is_comment(line)) {
            self.mistake(
                line,
                "there is SQL above the first `-- name:`".into(),
                Some("write `-- name: NAME :one` above it".into()),
            );
        }
        for section in sections {
            self.name(&section.begin);
            match section.begin.key {
                NAME => self.statement(&section),
                _ => self.transaction(&section),
            }
        }
        if self.found.statements.len() + self.found.transactions.len() > STATEMENTS_MAX {
            self.mistake(1, format!("a file has at most {STATEMENTS_MAX} statements and transactions"), None);
        }
        self.resolve_steps();
        self.check_grants();
    }

    /// Takes notice of the name that a section begins with.
    fn name(&mut self, begin: &Annotation<'a>) {
        let name = begin.value.split_whitespace().next().unwrap_or_default();
        if let Err(fault) = identifier(name) {
            return self.fault(begin.line, fault);
        }
        if let Some(line) = self.names.insert(name, begin.line) {
            self.mistake(
                begin.line,
                format!("`{name}` is the name of what is in line {line}"),
                Some("choose another".into()),
            );
        }
    }

    fn statement(&mut self, section: &Section<'a>) {
        let Section { begin, annotations, body: (text, first) } = section;
        let mut words = begin.value.split_whitespace();
        let name = words.next().unwrap_or_default();
        let kind = match (words.next(), words.next()) {
            (Some(word), None) => {
                StatementKind::ALL.into_iter().find_map(|(known, kind)| (known == word).then_some(kind))
            }
            _ => None,
        };
        let Some(kind) = kind else {
            let kinds: Vec<&str> = StatementKind::ALL.iter().map(|(word, _)| *word).collect();
            let rule = format!("behind the name stands what the statement gives back: {}", kinds.join(", "));
            return self.mistake(begin.line, rule, Some(format!("write `-- name: {name} :many`")));
        };
        let known = self.known(annotations, OF_STATEMENT);
        let parameters: Vec<Parameter> =
            self.value(&known, "params", Annotation::parameters).unwrap_or_default();
        if !kind.has_rows() {
            for key in ["max_rows", "max_bytes"].into_iter().filter_map(|key| known.get(key)) {
                self.mistake(key.line, format!("`-- {}:` is for statements that give rows", key.key), None);
            }
        }
        let (words, read) = match self.dialect {
            Some(Engine::Redis) => command::read(text, &parameters),
            dialect => (Vec::new(), body::read(text, dialect, &parameters)),
        };
        // Nothing stands below the annotations of the last statement: there may be no such line.
        let is_there = !text.trim().is_empty();
        for fault in read.faults {
            let line = if is_there { first + fault.line } else { begin.line };
            self.mistake(line, fault.rule, fault.help.map(str::to_owned));
        }
        let is_named = known.contains_key("services");
        let services = if is_named { self.services(begin, &known) } else { Vec::new() };
        self.grants.push(is_named);
        let statement = Statement {
            name: name.to_owned(),
            kind,
            services,
            parameters,
            max_rows: self.value(&known, "max_rows", Annotation::rows).unwrap_or(MAX_ROWS),
            max_bytes: self.value(&known, "max_bytes", Annotation::bytes).unwrap_or(MAX_BYTES),
            timeout: self.timeout(&known),
            line: begin.line,
            sql_line: *first,
            words,
            pieces: read.pieces,
        };
        self.found.statements.push(statement);
    }

    fn transaction(&mut self, section: &Section<'a>) {
        let Section { begin, annotations, body: (text, first) } = section;
        if let Some((line, _)) = (*first..).zip(text.lines()).find(|(_, line)| !is_comment(line)) {
            self.mistake(
                line,
                "a transaction has no SQL of its own".into(),
                Some("name its statements: `-- statements: a, b`".into()),
            );
        }
        let known = self.known(annotations, OF_TRANSACTION);
        let steps = self.value(&known, "statements", |annotation| {
            Ok(annotation.value.split(',').map(str::trim).collect())
        });
        match steps {
            Some(steps) => self.steps.push((self.found.transactions.len(), steps, known["statements"].line)),
            None if known.contains_key("statements") => {}
            None => self.mistake(begin.line, "a transaction needs `-- statements:`".into(), None),
        }
        let transaction = Transaction {
            name: begin.value.to_owned(),
            services: self.services(begin, &known),
            steps: Vec::new(),
            timeout: self.timeout(&known),
            line: begin.line,
        };
        self.found.transactions.push(transaction);
    }

    /// The annotations that there can be, each once.
    fn known(&mut self, annotations: &[Annotation<'a>], keys: &[&str]) -> HashMap<&'a str, Annotation<'a>> {
        let mut known = HashMap::new();
        for annotation in annotations {
            let Annotation { key, line, .. } = *annotation;
            if !keys.contains(&key) {
                let near = suggest::closest(key, keys).map(|near| format!("did you mean `-- {near}:`?"));
                let help = near.unwrap_or_else(|| format!("there are {}", keys.join(", ")));
                self.mistake(line, format!("there is no annotation `-- {key}:`"), Some(help));
            } else if known.insert(key, *annotation).is_some() {
                self.mistake(line, format!("`-- {key}:` stands twice"), None);
            }
        }
        known
    }

    /// The services that may call what a section has; nobody is a mistake.
    fn services(&mut self, begin: &Annotation<'_>, known: &HashMap<&str, Annotation<'_>>) -> Vec<String> {
        if !known.contains_key("services") {
            self.nobody_calls(begin.line, "");
        }
        self.value(known, "services", Annotation::services).unwrap_or_default()
    }

    fn nobody_calls(&mut self, line: usize, or: &str) {
        let help = format!(
            "write `-- services: NAME, ...`, of services of the site that have this source in `data`{or}"
        );
        self.mistake(line, "it does not say which services may call it".into(), Some(help));
    }

    /// A statement may leave its services out if a transaction has it: then it is called as a part of that alone. One
    /// that nobody can call is good for nothing.
    fn check_grants(&mut self) {
        let transactions = &self.found.transactions;
        let used: Vec<usize> = transactions.iter().flat_map(|group| group.steps.iter().copied()).collect();
        let grants = std::mem::take(&mut self.grants).into_iter().enumerate();
        for (number, _) in grants.filter(|(number, is_named)| !is_named && !used.contains(number)) {
            self.nobody_calls(
                self.found.statements[number].line,
                ", or name it in the `-- statements:` of a transaction",
            );
        }
    }

    fn timeout(&mut self, known: &HashMap<&str, Annotation<'_>>) -> Duration {
        self.value(known, "timeout", Annotation::duration).unwrap_or(TIMEOUT)
    }

    fn value<'k, T>(
        &mut self,
        known: &HashMap<&str, Annotation<'k>>,
        key: &str,
        read: impl FnOnce(&Annotation<'k>) -> Result<T, HeaderFault>,
    ) -> Option<T> {
        let annotation = known.get(key)?;
        read(annotation).map_err(|fault| self.fault(annotation.line, fault)).ok()
    }

    /// Finds the statements of transactions.
    fn resolve_steps(&mut self) {
        for (transaction, names, line) in std::mem::take(&mut self.steps) {
            if names.len() > STEPS_MAX {
                self.mistake(
                    line,
                    format!("a transaction has at most {STEPS_MAX} statements, and this has {}", names.len()),
                    None,
                );
                continue;
            }
            for name in names {
                match self.found.statements.iter().position(|statement| statement.name == name) {
                    Some(step) => self.found.transactions[transaction].steps.push(step),
                    None => {
                        let all: Vec<&str> =
                            self.found.statements.iter().map(|statement| &*statement.name).collect();
                        let near = suggest::closest(name, &all).map(|near| format!("did you mean `{near}`?"));
                        self.mistake(line, format!("there is no statement `{name}`"), near);
                    }
                }
            }
        }
    }

    fn fault(&mut self, line: usize, (rule, help): HeaderFault) {
        self.mistake(line, rule, help);
    }

    fn mistake(&mut self, line: usize, rule: String, help: Option<String>) {
        self.mistakes.push(StatementMistake { line, rule, help });
    }
}

/// Whether a line says nothing to a database.
fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with("--")
}

/// The text above the first section, and the sections.
fn sections(text: &str) -> (&str, Vec<Section<'_>>) {
    let mut begins: Vec<(usize, Annotation<'_>)> = Vec::new();
    let (mut at, mut lines) = (0, Vec::new());
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        if let Some(annotation) =
            Annotation::of(line, number).filter(|found| matches!(found.key, NAME | TRANSACTION))
        {
            begins.push((lines.len(), annotation));
        }
        lines.push((at, line));
        at += line.len();
    }
    let offset = |line: usize| lines.get(line).map_or(text.len(), |(at, _)| *at);
    let ends = begins.iter().skip(1).map(|(line, _)| *line).chain([lines.len()]);
    let sections = begins.iter().zip(ends).map(|((line, begin), end)| {
        let header =
            lines[line + 1..end].iter().take_while(|(_, line)| line.trim_start().starts_with("--")).count();
        let body = line + 1 + header;
        let annotations = (line + 1..body).filter_map(|at| Annotation::of(lines[at].1, at + 1));
        Section {
            begin: *begin,
            annotations: annotations.collect(),
            body: (&text[offset(body)..offset(end)], body + 1),
        }
    });
    let before = begins.first().map_or(text, |(line, _)| &text[..offset(*line)]);
    (before, sections.collect())
}

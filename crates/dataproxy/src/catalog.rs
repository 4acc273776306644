//! The statements of a file, after the database has prepared all of them, and the services that may call each.
//!
//! Sees: the operator's file, names and values from services. Never: lets a call pass that was not granted.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use statements::{Parameter, Statements, Type};
use wire::data::{CallFault, Value};

use crate::queue::Lane;

/// The statement or transaction of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogEntry {
    /// The statement of this number.
    Statement(usize),
    /// The transaction of this number.
    Transaction(usize),
}

/// Why statements do not hold.
#[derive(Debug)]
pub enum CatalogError {
    /// The database cannot be asked.
    Database(String),
    /// Every mistake, with its line.
    Mistakes(Vec<String>),
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(reason) => f.write_str(reason),
            Self::Mistakes(mistakes) => write!(f, "the statements: {}", mistakes.join("; ")),
        }
    }
}

/// The statements that hold now.
#[derive(Debug)]
pub struct Catalog {
    /// The file.
    pub file: Statements,
    /// Which statements only read, by number.
    pub reads: Vec<bool>,
    /// Whether one thread writes for all.
    one_writes: bool,
    /// How long statements usually take at a server, in microseconds, by number; 0 while nobody knows.
    usual_us: Vec<AtomicU32>,
    names: HashMap<String, CatalogEntry>,
}

impl Catalog {
    /// Statements of which the database has said whether they only read.
    pub fn new(file: Statements, reads: Vec<bool>, one_writes: bool) -> Self {
        let statements = file.statements.iter().enumerate();
        let statements = statements.map(|(number, one)| (one.name.clone(), CatalogEntry::Statement(number)));
        let transactions = file.transactions.iter().enumerate();
        let transactions =
            transactions.map(|(number, one)| (one.name.clone(), CatalogEntry::Transaction(number)));
        let names = statements.chain(transactions).collect();
        let usual_us = file.statements.iter().map(|_| AtomicU32::new(0)).collect();
        Self { file, reads, one_writes, usual_us, names }
    }

    /// A statement has taken so long.
    pub(crate) fn took(&self, number: usize, time: Duration) {
        let now = u32::try_from(time.as_micros()).unwrap_or(u32::MAX / 8).clamp(1, u32::MAX / 8);
        let usual = &self.usual_us[number];
        let before = usual.load(Ordering::Relaxed);
        usual.store(
            if before == 0 { now } else { (7 * before.min(u32::MAX / 8) + now) / 8 },
            Ordering::Relaxed,
        );
    }

    /// How long a statement usually takes, if that is known.
    pub(crate) fn usual(&self, number: usize) -> Option<Duration> {
        let usual = self.usual_us[number].load(Ordering::Relaxed);
        (usual > 0).then(|| Duration::from_micros(usual.into()))
    }

    /// The entry that a service may call by this name; `None` also if there is no such name: the service learns no
    /// names.
    pub fn granted(&self, service: &str, name: &str) -> Option<CatalogEntry> {
        let call = *self.names.get(name)?;
        let services = match call {
            CatalogEntry::Statement(number) => &self.file.statements[number].services,
            CatalogEntry::Transaction(number) => &self.file.transactions[number].services,
        };
        services.iter().any(|granted| granted == service).then_some(call)
    }

    /// Whether the name stands for anything.
    pub fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The statements of a call, in order.
    pub fn steps<'c>(&'c self, call: &'c CatalogEntry) -> &'c [usize] {
        match call {
            CatalogEntry::Statement(number) => std::slice::from_ref(number),
            CatalogEntry::Transaction(number) => &self.file.transactions[*number].steps,
        }
    }

    /// How long a call may take.
    pub fn timeout(&self, call: CatalogEntry) -> Duration {
        match call {
            CatalogEntry::Statement(number) => self.file.statements[number].timeout,
            CatalogEntry::Transaction(number) => self.file.transactions[number].timeout,
        }
    }

    /// The calls of a service with a timeout of their own, and that timeout.
    pub fn timeouts<'c>(&'c self, service: &'c str) -> impl Iterator<Item = (&'c str, Duration)> {
        let granted = self.names.keys().filter_map(move |name| Some((name, self.granted(service, name)?)));
        let timeouts = granted.map(|(name, call)| (name.as_str(), self.timeout(call)));
        timeouts.filter(|(_, timeout)| *timeout != statements::TIMEOUT)
    }

    /// The lane that carries a call out.
    pub fn lane(&self, call: CatalogEntry) -> Lane {
        let only_reads = matches!(call, CatalogEntry::Statement(number) if self.reads[number]);
        if only_reads || !self.one_writes { Lane::Read } else { Lane::Write }
    }

    /// Checks the values of a call against the parameters of its statements.
    ///
    /// # Errors
    /// The parameter that does not fit.
    pub fn check(&self, call: CatalogEntry, values: &[Value]) -> Result<(), (CallFault, String)> {
        let steps = self.steps(&call).iter();
        let parameters = steps.flat_map(|step| &self.file.statements[*step].parameters);
        let count = parameters.clone().count();
        let wrong = |reason| Err((CallFault::Parameters, reason));
        if count != values.len() {
            return wrong(format!("it has {count} parameters, and {} came", values.len()));
        }
        match parameters.zip(values).find(|(parameter, value)| !fits(parameter, value)) {
            Some((Parameter { name, kind, .. }, value)) => {
                wrong(format!("`{name}` is {} {}, and {} came", article(*kind), kind.word(), of(value)))
            }
            None => Ok(()),
        }
    }
}

fn fits(parameter: &Parameter, value: &Value) -> bool {
    match (parameter.kind, value) {
        (_, Value::Null) => parameter.nullable,
        (Type::Bool, Value::Int(number)) => (0..=1).contains(number),
        (Type::Int | Type::Real, Value::Int(_)) => true,
        (Type::Real, Value::Real(_)) => true,
        (Type::Text, Value::Text(_)) => true,
        (Type::Blob, Value::Blob(_)) => true,
        _ => false,
    }
}

fn article(kind: Type) -> &'static str {
    if kind == Type::Int { "an" } else { "a" }
}

fn of(value: &Value) -> &'static str {
    match value {
        Value::Null => "NULL",
        Value::Int(_) => "a whole number",
        Value::Real(_) => "a real number",
        Value::Text(_) => "a text",
        Value::Blob(_) => "a blob",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
-- name: get :one
-- services: a, b
-- params: id int, big real, name text?, raw blob, on bool
SELECT :id, :big, :name, :raw, :on
-- name: add :exec
-- services: b
-- params: id int
INSERT INTO t VALUES (:id)
-- transaction: both
-- services: c
-- statements: add, step
-- name: step :exec
-- params: id int
DELETE FROM t WHERE id = :id
";

    fn catalog() -> Catalog {
        Catalog::new(statements::parse(FILE, Default::default()).unwrap(), vec![true, false, false], true)
    }

    #[test]
    fn nobody_calls_what_was_not_granted() {
        let catalog = catalog();
        assert_eq!(catalog.granted("a", "get"), Some(CatalogEntry::Statement(0)));
        assert_eq!(catalog.granted("a", "add"), None);
        assert_eq!(catalog.granted("c", "add"), None);
        assert_eq!(catalog.granted("c", "both"), Some(CatalogEntry::Transaction(0)));
        assert_eq!(["a", "b", "c", ""].map(|service| catalog.granted(service, "step")), [None; 4]);
        for name in ["", "nothing", "GET", "get ", "get\0", "SELECT 1"] {
            assert_eq!(catalog.granted("a", name), None, "{name:?}");
        }
        let lanes = [CatalogEntry::Statement(0), CatalogEntry::Statement(1), CatalogEntry::Transaction(0)]
            .map(|call| catalog.lane(call));
        assert_eq!(lanes, [Lane::Read, Lane::Write, Lane::Write]);
    }

    #[test]
    fn values_fit_their_types() {
        let (catalog, call) = (catalog(), CatalogEntry::Statement(0));
        let text = |text: &str| Value::Text(text.into());
        let good = [Value::Int(1), Value::Real(0.5), Value::Null, Value::Blob(vec![]), Value::Int(1)];
        assert_eq!(catalog.check(call, &good), Ok(()));
        let change = |at: usize, value: Value| {
            let mut values = good.to_vec();
            values[at] = value;
            catalog.check(call, &values)
        };
        assert_eq!(change(1, Value::Int(7)), Ok(()));
        assert_eq!(change(2, text("'; --")), Ok(()));
        for (at, value) in [
            (0, Value::Real(1.0)),
            (0, text("1")),
            (0, Value::Null),
            (1, text("1.0")),
            (2, Value::Blob(vec![65])),
            (3, text("A")),
            (4, Value::Int(2)),
        ] {
            assert_eq!(change(at, value.clone()).unwrap_err().0, CallFault::Parameters, "{at} {value:?}");
        }
        assert!(catalog.check(call, &good[1..]).unwrap_err().1.contains("5 parameters, and 4 came"));
        assert_eq!(catalog.check(CatalogEntry::Transaction(0), &[Value::Int(1), Value::Int(2)]), Ok(()));
        assert!(catalog.check(CatalogEntry::Transaction(0), &[Value::Int(1)]).is_err());
    }
}
